//! Builds and runs projects in five languages with their own dependencies.

use motu_testkit::builds::{build, built, compilers, counts, project, says, world_of_its_own};
use motu_testkit::story::Story;
use std::fs;
use std::path::Path;

/// Builds twice and runs: the second build takes every step from the cache.
fn works(story: &Story, name: &str, dir: &Path, steps: u64, said: &str) {
    let tag = format!("{name}:1");
    let more = ["-t", &tag, "--mem-mib", "1024"];
    let first = built(&build(story, dir, &more));
    assert_eq!(counts(&first), (steps, 0), "{name}");
    says(story, &["run", &tag], said);
    let again = built(&build(story, dir, &more));
    assert_eq!(counts(&again), (steps, steps), "{name}");
    assert_eq!(again["digest"], first["digest"], "{name}");
}

/// Changes a file: the steps before it still come from the cache.
fn after_a_change(story: &Story, name: &str, dir: &Path, file: (&str, &str), known: u64) {
    let tag = format!("{name}:2");
    let path = dir.join(file.0);
    fs::write(&path, file.1).unwrap();
    let changed = built(&build(story, dir, &["-t", &tag, "--mem-mib", "1024"]));
    assert_eq!(counts(&changed).1, known, "{name}: {changed}");
}

/// A story with the environment of compilers under a short name.
fn with_compilers() -> Option<Story> {
    let story = world_of_its_own()?;
    let Some(compilers) = compilers() else {
        motu_needs::skip("building: there is no environment with compilers");
        return None;
    };
    let tagged = story.motu(&["env", "tag", &compilers, "compilers:1"]);
    assert_eq!(tagged.code, 0, "{tagged}");
    Some(story)
}

#[test]
fn python_with_a_package_it_brings_along() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    let dir = project(
        &story,
        "python",
        &[
            (
                "vendor/tiny/tiny/__init__.py",
                "def total(words):\n    return sum(map(int, words))\n",
            ),
            (
                "vendor/tiny/setup.py",
                "from setuptools import setup\nsetup(name='tiny', version='1.0', packages=['tiny'])\n",
            ),
            ("requirements.txt", "./vendor/tiny\n"),
            ("app/__init__.py", ""),
            (
                "app/main.py",
                "import sys\nfrom tiny import total\nprint('sum', total(sys.argv[1:]))\n",
            ),
            (".dockerignore", "**/__pycache__\n*.md\n"),
            (
                "Dockerfile",
                "FROM debian:12 AS packages\nWORKDIR /src\nCOPY requirements.txt .\nCOPY vendor vendor\n\
                 RUN python3 -m venv /opt/env\n\
                 RUN --mount=type=cache,target=/root/.cache/pip \
                     /opt/env/bin/pip install --no-index --no-build-isolation --disable-pip-version-check -r requirements.txt\n\
                 FROM debian:12\nRUN useradd -m app\nCOPY --from=packages /opt/env /opt/env\n\
                 USER app\nWORKDIR /home/app\nENV PATH=/opt/env/bin:$PATH PYTHONDONTWRITEBYTECODE=1\n\
                 COPY --chown=app:app app app\nRUN python3 -m app.main 1 2 | grep 'sum 3' && id -un > who\n\
                 ENTRYPOINT [\"python3\", \"-m\", \"app.main\"]\nCMD [\"20\", \"22\"]\n",
            ),
        ],
    );
    works(&story, "python", &dir, 10, "sum 42");
    says(
        &story,
        &["run", "python:1", "--", "cat", "/home/app/who"],
        "app",
    );
    let new = "import sys\nfrom tiny import total\nprint('sum', total(sys.argv[1:]) + 0)\n";
    after_a_change(&story, "python", &dir, ("app/main.py", new), 8);
}

#[test]
fn node_with_a_package_it_brings_along() {
    let Some(story) = with_compilers() else {
        return;
    };
    let dir = project(
        &story,
        "node",
        &[
            (
                "vendor/tiny/package.json",
                r#"{"name": "tiny", "version": "1.0.0", "main": "index.js"}"#,
            ),
            (
                "vendor/tiny/index.js",
                "module.exports = (words) => words.map(Number).reduce((a, b) => a + b, 0);\n",
            ),
            (
                "package.json",
                r#"{"name": "app", "version": "1.0.0", "dependencies": {"tiny": "file:vendor/tiny"}, "scripts": {"test": "node --check main.js"}}"#,
            ),
            (
                "main.js",
                "console.log('sum', require('tiny')(process.argv.slice(2)));\n",
            ),
            (
                "Dockerfile",
                "FROM compilers:1\nWORKDIR /app\nCOPY package.json ./\nCOPY vendor vendor\n\
                 RUN --mount=type=cache,target=/root/.npm npm install --offline --no-audit --no-fund --install-links\n\
                 COPY main.js .\nRUN npm test\nENV NODE_ENV=production\n\
                 ENTRYPOINT [\"node\", \"/app/main.js\"]\nCMD [\"20\", \"22\"]\n",
            ),
        ],
    );
    works(&story, "node", &dir, 6, "sum 42");
    let new = "console.log('the sum is', require('tiny')(process.argv.slice(2)));\n";
    after_a_change(&story, "node", &dir, ("main.js", new), 4);
    says(&story, &["run", "node:2"], "the sum is 42");
}

#[test]
fn go_with_a_module_it_brings_along() {
    let Some(story) = with_compilers() else {
        return;
    };
    let dir = project(
        &story,
        "go",
        &[
            (
                "go.mod",
                "module example.com/app\n\ngo 1.19\n\nrequire example.com/tiny v1.0.0\n",
            ),
            (
                "vendor/modules.txt",
                "# example.com/tiny v1.0.0\n## explicit; go 1.19\nexample.com/tiny\n",
            ),
            (
                "vendor/example.com/tiny/tiny.go",
                "package tiny\n\nfunc Total(all ...int) (sum int) {\n\tfor _, one := range all {\n\t\tsum += one\n\t}\n\treturn\n}\n",
            ),
            (
                "main.go",
                "package main\n\nimport (\n\t\"fmt\"\n\n\t\"example.com/tiny\"\n)\n\nvar version string\n\nfunc main() { fmt.Println(version, tiny.Total(20, 22)) }\n",
            ),
            (
                "Dockerfile",
                "FROM compilers:1 AS go\nARG VERSION=v1\nWORKDIR /src\nCOPY go.mod ./\nCOPY vendor vendor\nCOPY *.go ./\n\
                 RUN --mount=type=cache,target=/root/.cache/go-build \
                     CGO_ENABLED=0 go build -mod=vendor -trimpath -ldflags \"-s -w -X main.version=$VERSION\" -o /out/app .\n\
                 FROM scratch\nCOPY --from=go /out/app /app\nUSER 1000:1000\nENTRYPOINT [\"/app\"]\n",
            ),
        ],
    );
    works(&story, "go", &dir, 6, "v1 42");
    // The cache mount already has most of the objects of the second program.
    let new = "package main\n\nimport (\n\t\"fmt\"\n\n\t\"example.com/tiny\"\n)\n\nvar version string\n\nfunc main() { fmt.Println(version, tiny.Total(20, 22), \"again\") }\n";
    after_a_change(&story, "go", &dir, ("main.go", new), 3);
    says(&story, &["run", "go:2"], "v1 42 again");
}

#[test]
fn c_with_a_makefile_and_nothing_else_in_the_result() {
    let Some(story) = with_compilers() else {
        return;
    };
    let dir = project(
        &story,
        "c",
        &[
            (
                "Makefile",
                "out: main.o total.o\n\t$(CC) -static -o out main.o total.o\n%.o: %.c total.h\n\t$(CC) -O1 -DGREETING=\\\"$(GREETING)\\\" -c -o $@ $<\n",
            ),
            ("total.h", "int total(int count, char **words);\n"),
            (
                "total.c",
                "#include <stdlib.h>\n#include \"total.h\"\nint total(int count, char **words) { int sum = 0; while (count--) sum += atoi(*words++); return sum; }\n",
            ),
            (
                "main.c",
                "#include <stdio.h>\n#include \"total.h\"\nint main(int count, char **words) { printf(\"%s %d\\n\", GREETING, total(count - 1, words + 1)); return 0; }\n",
            ),
            (
                "Dockerfile",
                "FROM compilers:1 AS cc\nARG GREETING=sum\nCOPY . /src/\nRUN make -C /src GREETING=\"$GREETING\" out\n\
                 FROM scratch\nCOPY --from=cc /src/out /out\nENTRYPOINT [\"/out\"]\nCMD [\"20\", \"22\"]\n",
            ),
        ],
    );
    works(&story, "c", &dir, 3, "sum 42");
    let shown = story.motu(&["env", "inspect", "c:1", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    assert!(shown["size_bytes"].as_u64().unwrap() < 4 << 20, "{shown}");
    let greeting = ["-t", "c:2", "--build-arg", "GREETING=total"];
    built(&build(&story, &dir, &greeting));
    says(&story, &["run", "c:2"], "total 42");
}

#[test]
fn ruby_with_a_gem_it_brings_along() {
    let Some(story) = with_compilers() else {
        return;
    };
    let dir = project(
        &story,
        "ruby",
        &[
            (
                "vendor/tiny/lib/tiny.rb",
                "module Tiny\n  def self.total(words) = words.sum(&:to_i)\nend\n",
            ),
            (
                "vendor/tiny/tiny.gemspec",
                "Gem::Specification.new do |s|\n  s.name = 'tiny'\n  s.version = '1.0.0'\n  s.summary = 'sums'\n  s.authors = ['a']\n  s.files = ['lib/tiny.rb']\nend\n",
            ),
            (
                "main.rb",
                "require 'tiny'\nputs \"sum #{Tiny.total(ARGV)}\"\n",
            ),
            (
                "Dockerfile",
                "FROM compilers:1\nCOPY vendor /vendor\nWORKDIR /vendor/tiny\n\
                 RUN gem build tiny.gemspec && gem install --local --no-document tiny-1.0.0.gem\n\
                 WORKDIR /app\nCOPY main.rb .\nSHELL [\"/bin/bash\", \"-ec\"]\nRUN ruby -c main.rb | grep 'Syntax OK'\n\
                 ENTRYPOINT [\"ruby\", \"/app/main.rb\"]\nCMD [\"20\", \"22\"]\n",
            ),
        ],
    );
    works(&story, "ruby", &dir, 6, "sum 42");
    let new = "require 'tiny'\nputs \"total #{Tiny.total(ARGV)}\"\n";
    after_a_change(&story, "ruby", &dir, ("main.rb", new), 4);
    says(&story, &["run", "ruby:2"], "total 42");
}
