// What happens to a command of E2B's JavaScript SDK that runs for long when the
// gateway goes away.
//
// Usage: node life.mjs FOLDER restart, where FOLDER holds node_modules with the
// SDK. The same steps as life.py's, in the same form.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import path from 'node:path'
import readline from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'

const folder = path.resolve(process.argv[2])
const e2b = createRequire(path.join(folder, 'package.json'))('e2b')
const COUNT = 'i=0; while :; do echo $((i+=1)); sleep 0.1; done'

const step = (name, seen = {}) => console.log(JSON.stringify({ step: name, ...seen }))

async function until(what, cond, seconds = 30) {
  const end = performance.now() + seconds * 1000
  for (;;) {
    const value = await cond()
    if (value) return value
    assert(performance.now() < end, `${what} does not happen`)
    await pause(50)
  }
}

// last is the last whole number of an output that counts.
const last = (seen) => Number(seen.join('').split('\n').at(-2))

async function restart() {
  const s = await e2b.Sandbox.create({ timeoutMs: 300_000 })
  const seen = []
  const handle = await s.commands.run(COUNT, { background: true, timeoutMs: 0, onStdout: (text) => { seen.push(text) } })
  await until('output', () => seen.length > 5)
  let error
  const waiting = handle.wait().then(() => assert.fail('the command ended'), (err) => { error = err })
  step('streaming')
  await new Promise((resolve) => { readline.createInterface({ input: process.stdin }).once('line', resolve) })
  const before = seen.length
  await until('an end of the stream, or more output', () => error || seen.length > before + 20)
  if (error) {
    await waiting
    step('stream', { ended: error.name, typed: error instanceof e2b.SandboxError, text: error.message })
  } else {
    step('stream', { ended: '', typed: false, text: '' })
    await handle.disconnect()
  }
  const listed = await until('an answer', () => s.commands.list().catch((err) => {
    if (!(err instanceof e2b.SandboxError)) throw err
  }))
  assert(listed.some((p) => p.pid === handle.pid), `${handle.pid} is not in ${JSON.stringify(listed)}`)
  const again = []
  const attached = await s.commands.connect(handle.pid, { timeoutMs: 0, onStdout: (text) => { again.push(text) } })
  attached.wait().catch(() => {}) // it is killed below
  await until('output after attaching again', () => again.length > 5)
  step('attached', { before: last(seen), after: last(again) })
  assert(await attached.kill())
  assert.equal((await s.commands.run('echo still here')).stdout, 'still here\n')
  assert(await s.isRunning())
  assert(await s.kill())
  step('killed')
}

assert.equal(process.argv[3], 'restart')
await restart()
process.exit(0) // standard input stays open
