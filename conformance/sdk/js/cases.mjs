// Cases of E2B's JavaScript SDK against a running backend.
//
// Usage: node cases.mjs FOLDER [CASE…], all without names, where FOLDER holds node_modules
// with the SDK, which is configured by its usual variables. Each case is a function of one of
// the modules cases_… and gives one line of JSON: name, ok, error, ms. The Go package of this
// folder's parent starts it and knows which cases there must be.
import { setTimeout as pause } from 'node:timers/promises'
import access from './cases_access.mjs'
import commands from './cases_commands.mjs'
import errors from './cases_errors.mjs'
import files from './cases_files.mjs'
import pauses from './cases_pauses.mjs'
import sandboxes from './cases_sandboxes.mjs'
import { Sandbox } from './suite.mjs'

const cases = { ...sandboxes, ...commands, ...files, ...pauses, ...access, ...errors }

const shared = await Sandbox.create({ timeoutMs: 600_000 })
const wanted = process.argv.slice(3)
for (const [name, run] of Object.entries(cases)) {
  if (wanted.length && !wanted.includes(name)) continue
  const began = performance.now()
  let error = ''
  try {
    await Promise.race([run(shared), pause(90_000, null, { ref: false }).then(() => { throw new Error('no end after 90 s') })])
  } catch (err) {
    error = `${err?.name}: ${err?.message}`
  }
  console.log(JSON.stringify({ name, ok: !error, error, ms: Math.round(performance.now() - began) }))
}
await shared.kill()
