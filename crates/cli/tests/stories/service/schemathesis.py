"""Requests that schemathesis makes from the API document, sent to a live daemon.

    python run.py DOCUMENT URL KEY SECONDS SEED

No answer may be a 5xx, a request that the document allows may not be refused for its form, and one that
it does not allow may not be taken. What
a document of OpenAPI has no words for is in RELATIONS, each with its reason, and in the contract of
typed calls; anything else that is refused is missing in the document.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: Seconds that are not enough for more than the edges.
SHORT = 90

#: Addresses that turn into something else than HTTP, that wait for events to come, or that ask
#: other hosts for gigabytes.
LEFT_OUT = r"(/ws$|/pty$|/dial$|/lend(-directory)?$|/ports/|/pull$|/follow$|/watch$|/stream$|/events$|/environments/build$|/build$)"

#: Why a request that fits the document may be refused all the same: reasons, and what the refusals say.
RELATIONS = {
    "parameters of a query are described one by one, so they cannot exclude or need each other": (
        r"^a path is (missing|given twice)|^no path is given|^half of a size is given|^these attach parameters|^[-0-9]+ to [-0-9]+ cannot be answered"
    ),
    "what there is in a machine: files, directories, programs, users": (
        r"no such file or directory|(not|is) a directory|is (no|not a) regular file|is not a text file|^cannot run|names no entry of a directory|^there is no (bash|user)|^cwd: "
    ),
    "what the host has and is configured with: runtimes, accelerators": r"^there is no runtime|has no accelerator to choose",
    "texts in a language of their own: policies, patches, patterns": r"^policy checked|^the patch|regular expression|regex parse error",
    "a path in base64 may hold a zero, and one of a workspace may lead out of it": (
        r"the path contains|is not a path in /workspace|the path is /workspace itself"
    ),
    "names of images and hosts, whose grammar is not ours": r"^environment name|is no host",
    "a cursor is a word of the list before, which nobody else can make up": r"^the cursor is none of this list|the base64 cannot be read",
}


def answers(report: Path) -> list[tuple[str, str, int, str, str]]:
    """Every failed check: operation, check, status, message of the error, request."""
    found: list[tuple[str, str, int, str, str]] = []
    for line in report.read_text().splitlines():
        event: dict[str, Any] = json.loads(line)
        recorder = event.get("ScenarioFinished", {}).get("recorder") or {}
        interactions = recorder.get("interactions") or {}
        for case, checks in (recorder.get("checks") or {}).items():
            for check in checks:
                if check.get("status") == "success":
                    continue
                interaction = interactions.get(case) or {}
                response = interaction.get("response") or {}
                request = interaction.get("request") or {}
                asked = f"{request.get('uri', '')} {text(request.get('body'))[:400]}"
                body = text(response.get("content"))
                found.append((recorder.get("label", ""), check["name"], response.get("status_code", 0), body, asked))
    return found


def text(content: Any) -> str:
    if isinstance(content, dict):
        content = content.get("$base64", "")
    try:
        return base64.b64decode(content or "").decode(errors="replace")
    except ValueError:
        return str(content)


def cases(report: Path) -> int:
    recorders = (json.loads(line).get("ScenarioFinished", {}).get("recorder") or {} for line in report.open())
    return sum(len(recorder.get("interactions") or {}) for recorder in recorders)


def excused(status: int, body: str) -> bool:
    try:
        answer = json.loads(body)
        if status == 200 and answer.get("allowed") is False:
            # A dry run takes what is wrong, and says what.
            return True
        error = answer["error"]
    except (ValueError, KeyError, AttributeError):
        return False
    if status == 501:
        # What a runtime cannot do it says: that is no failure of the server.
        return error["kind"] == "unsupported"
    if error.get("details", {}).get("class") == "validation_failure":
        # A typed call is checked against its policy, field by field: its own contract.
        return True
    return status == 400 and any(re.search(one, error["message"]) for one in RELATIONS.values())


def main() -> int:
    document, url, key, seconds, seed = sys.argv[1:6]
    program = Path(sys.executable).with_name("schemathesis")
    with tempfile.TemporaryDirectory() as place:
        command = [program, "run", document, "--url", url, "--header", f"Authorization: Bearer {key}"]
        # The values at the edges of what the document allows are the same every time: they are what every test run
        # has. A longer one goes on with values that nobody has thought of.
        phases = "coverage,fuzzing" if int(seconds) > SHORT else "coverage"
        command += ["--mode", "all", "--seed", seed, "--phases", phases, "--workers", "2"]
        command += ["--max-time", seconds, "--request-timeout", "20", "--continue-on-failure", "--no-shrink"]
        command += ["--checks", "not_a_server_error,positive_data_acceptance,negative_data_rejection", "--exclude-path-regex", LEFT_OUT]
        command += ["--report", "ndjson", "--report-dir", place, "--suppress-health-check", "all"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=place)
        reports = list(Path(place).glob("ndjson*"))
        if not reports:
            print(done.stdout[-4000:], done.stderr[-4000:])
            return 1
        sent = cases(reports[0])
        wrong = [one for one in answers(reports[0]) if not excused(one[2], one[3])]
    told: set[tuple[str, int]] = set()
    for operation, check, status, body, asked in wrong:
        if (operation, status) not in told:
            told.add((operation, status))
            print(f"{operation}: {check}: {status} {body[:400]}\n    {asked}")
    print(f"{sent} requests, {len(wrong)} wrong")
    if sent < 300:
        print("too few requests to say anything")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
