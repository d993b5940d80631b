// The first program of the documentation of E2B's code interpreter SDK for JavaScript, and
// a chart. Usage: node interpreter.mjs FOLDER, where FOLDER holds node_modules with the SDK.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import path from 'node:path'

const { Sandbox } = createRequire(path.join(path.resolve(process.argv[2]), 'package.json'))('@e2b/code-interpreter')

const cases = {
  async first_program(sandbox) {
    await sandbox.runCode('x = 1')
    assert.equal((await sandbox.runCode('x+=1; x')).text, '2')
  },
  async languages(sandbox) {
    assert.equal((await sandbox.runCode('const c: number = 6; c', { language: 'ts' })).text, '6')
  },
  async callbacks(sandbox) {
    const seen = []
    await sandbox.runCode('print("out")\n1/0', { onStdout: (m) => seen.push(m.line), onError: (e) => seen.push(e.name) })
    assert.deepEqual(seen, ['out\n', 'ZeroDivisionError'])
  },
}

const shared = await Sandbox.create()
for (const [name, run] of Object.entries(cases)) {
  let error = ''
  try {
    await run(shared)
  } catch (err) {
    error = `${err?.name}: ${err?.message}`
  }
  console.log(JSON.stringify({ name, ok: !error, error }))
}
await shared.kill()
