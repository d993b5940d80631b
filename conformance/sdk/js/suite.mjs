// What the cases of E2B's JavaScript SDK share: the configuration, and the steps of a case.
import assert from 'node:assert/strict'
import http from 'node:http'
import { createRequire } from 'node:module'
import path from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'

export const folder = path.resolve(process.argv[2]) // holds node_modules with the SDK
export const e2b = createRequire(path.join(folder, 'package.json'))('e2b')
export const { Sandbox } = e2b
export const GATEWAY = process.env.E2B_SANDBOX_URL
export const ELSEWHERE = process.env.TEST_ELSEWHERE_URL // the gateway, seen from another address
// The run's mark in the metadata of what the cases make, so that nothing is left after a kill.
const MARK = 'sandlane-conformance'
const RUN = process.env.CONFORMANCE_RUN
export const PARALLEL = 50
export const BIG = 10 << 20
export const MISSING = 'i00000000000000000000'

if (RUN) {
  const create = Sandbox.create.bind(Sandbox)
  Sandbox.create = (...args) => {
    const template = typeof args[0] === 'string' ? [args.shift()] : []
    return create(...template, { ...args[0], metadata: { ...args[0]?.metadata, [MARK]: RUN } })
  }
}

// own is what a case has given, without the run's mark.
export function own({ [MARK]: _, ...metadata }) {
  return metadata
}

export async function until(what, cond, seconds = 10) {
  const end = performance.now() + seconds * 1000
  while (!(await cond())) {
    assert(performance.now() < end, `${what} does not happen`)
    await pause(50)
  }
}

// fails expects this class of error, or one below it.
export async function fails(error, call) {
  let value
  try {
    value = await call()
  } catch (err) {
    if (err instanceof error) return err
    throw new Error(`${err.name} instead of ${error.name}: ${err.message}`)
  }
  throw new Error(`${JSON.stringify(value)} instead of ${error.name}`)
}

// gone expects what the SDK says of a sandbox that has ended.
export function gone(err) {
  assert(err instanceof e2b.TimeoutError || err instanceof e2b.NotFoundError, `${err.name}: ${err.message}`)
}

// made gives use a sandbox and ends it afterwards.
export async function made(options, use) {
  const s = await Sandbox.create(options)
  try {
    await use(s)
  } finally {
    await s.kill()
  }
}

export async function hasText(s, at, text) {
  return (await s.files.exists(at)) && (await s.files.read(at)).includes(text)
}

// fetchHost asks the gateway for a host as a browser would whose DNS leads here.
export function fetchHost(host, at = '/', headers = {}) {
  return new Promise((resolve, reject) => {
    const request = http.get(GATEWAY + at, { headers: { Host: host, ...headers }, timeout: 10_000 }, (answer) => {
      let text = ''
      answer.on('data', (part) => (text += part))
      answer.on('end', () => resolve({ status: answer.statusCode, text }))
    })
    request.on('error', reject)
  })
}

// serve starts a web server in the sandbox and waits until it listens.
export async function serve(s, port) {
  await s.commands.run(`python3 -m http.server ${port}`, { background: true, cwd: '/home/user' })
  await s.commands.run(`until (: </dev/tcp/127.0.0.1/${port}) 2>/dev/null; do sleep 0.05; done`, { timeoutMs: 10_000 })
}
