// A session told by the official TypeScript SDK, of either generation, to a real server.
//
//   node sdk.mjs {sdk-old|sdk-new} MODULES MOTU EXPECTED
//
// This SDK checks every structured answer against the tool's output schema, errors included.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [generation, modules, motu, expected] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);

const old = generation === 'sdk-old';
const { Client } = await load(old ? 'sdk-old/client/index.js' : 'sdk-new');
const { StdioClientTransport } = await load(old ? 'sdk-old/client/stdio.js' : 'sdk-new/stdio');

async function serve(profile, story) {
    const client = new Client({ name: 'stories', version: '1' });
    const args = ['mcp', 'serve', '--profile', profile, '--approvals', 'auto'];
    await client.connect(new StdioClientTransport({ command: motu, args, env: process.env, stderr: 'inherit' }));
    const call = (name, args) => client.callTool({ name, arguments: args }, undefined, { timeout: 120_000 });
    try {
        await story(client, call);
    } finally {
        await client.close();
    }
}

for (const [profile, names] of Object.entries(JSON.parse(expected))) {
    await serve(profile, async (client) => {
        const { tools } = await client.listTools();
        assert.deepEqual(tools.map((tool) => tool.name).sort(), [...names].sort(), profile);
    });
}

await serve('workspace-core', async (client, call) => {
    await client.listTools();
    const told = async (name, args) => {
        const result = await call(name, args);
        assert.ok(!result.isError, JSON.stringify(result));
        return result.structuredContent;
    };
    const ran = await told('vm_run', { command: 'echo hi; exit 2', environment: 'busybox' });
    assert.equal(ran.stdout, 'hi\n');
    assert.equal(ran.exit_code, 2);
    const refused = await call('vm_run', { command: 'true', nonsense: 1 });
    assert.equal(refused.isError, true);
    assert.equal(refused.structuredContent.kind, 'invalid');
    const { workspace_id } = await told('workspace_create', { environment: 'busybox', name: 'from node' });
    await told('workspace_file_write', { workspace_id, path: '/workspace/a', text: 'x\n' });
    const diff = await told('workspace_diff', { workspace_id });
    assert.equal(diff.changed, true);
    const logs = await client.readResource({ uri: `motu://workspaces/${workspace_id}/diff` });
    assert.match(logs.contents[0].text, /\+x/);
    await told('workspace_delete', { workspace_id });
    const gone = await call('workspace_status', { workspace_id });
    assert.equal(gone.structuredContent.kind, 'not_found');
});
