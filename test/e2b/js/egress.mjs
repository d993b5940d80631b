// Cases of E2B's JavaScript SDK: a sandbox that may reach one host by name, with a
// credential that it never had.
//
// Usage: node egress.mjs FOLDER TRUSTED ADDRESS…, where FOLDER holds node_modules with the
// SDK, TRUSTED is a file with the authorities that the sandbox is to trust, and the
// addresses are those that it must not reach. Each case gives one line of JSON as those of
// cases.mjs do.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'

const [folder, trusted, ...addresses] = process.argv.slice(2)
const { Sandbox, Secret } = createRequire(path.join(path.resolve(folder), 'package.json'))('e2b')
const KEY = 'hunter2-never-in-the-sandbox'
const CA = '/tmp/trusted.pem'

// curl returns the answer's body, or curl's error, and its exit code.
async function curl(s, args) {
  const { stdout } = await s.commands.run(`curl -sS --max-time 20 --cacert ${CA} ${args} 2>&1; echo ":$?"`)
  const [, body, code] = stdout.trim().match(/^([^]*):(\d+)$/)
  return { body: body.trim(), code: Number(code) }
}

// seen returns what the host saw, once egress has followed by its watch.
async function seen(s, want) {
  let got
  for (let i = 0; i < 100; i++) {
    got = await curl(s, 'https://api.example/who')
    if (got.body.includes(want)) return got.body
    await pause(100)
  }
  throw new Error(got.body)
}

// ruled is a sandbox with a rule for api.example.
async function ruled(value) {
  const s = await Sandbox.create({
    timeoutMs: 120_000,
    network: { denyOut: ['0.0.0.0/0'], allowOut: ['api.example'], rules: { 'api.example': [{ transform: { headers: { Authorization: value } } }] } },
  })
  await s.files.write(CA, await readFile(trusted, 'utf8'))
  return s
}

const cases = {
  async allowed(s) {
    assert.deepEqual(await curl(s, 'https://api.example/who'), { body: `api.example Bearer ${KEY}`, code: 0 })
    assert.deepEqual(await curl(s, "-H 'authorization: mine' https://api.example/who"), { body: `api.example Bearer ${KEY}`, code: 0 })
  },
  async other_names(s) {
    assert.equal((await curl(s, 'https://other.example/')).code, 6)
    const { body, code } = await curl(s, '--connect-to other.example:443:api.example:443 https://other.example/')
    assert(code === 35 && body.includes('access denied'), `${code}: ${body}`)
  },
  async forged(s) {
    const { body } = await curl(s, "-H 'Host: plain.example' https://api.example/who")
    assert(!body.includes(KEY) && body.includes('another host'), body)
  },
  async addresses(s) {
    for (const address of addresses) assert.notEqual((await curl(s, `-k https://${address}/`)).code, 0, address)
  },
  async shown(s) {
    const shown = JSON.stringify((await s.getInfo()).network)
    assert(shown.includes('***') && !shown.includes(KEY), shown)
  },
  async updated(s) {
    await s.updateNetwork({ denyOut: ['0.0.0.0/0'], allowOut: ['plain.example'] })
    let got
    for (let i = 0; i < 50; i++) {
      got = await curl(s, 'https://api.example/who') // egress follows by a watch
      if (got.code === 6) break
      await pause(100)
    }
    assert.equal(got.code, 6, got.body)
    assert.deepEqual(await curl(s, 'https://plain.example/who'), { body: 'plain.example', code: 0 })
  },
  async secrets() {
    const made = await Secret.create('E2E-JS', `${KEY}-1`, { metadata: { team: 'a' } })
    try {
      assert.deepEqual([made.name, made.version, made.metadata], ['e2e-js', 1, { team: 'a' }])
      await assert.rejects(Secret.create('e2e-js', KEY), /Secret cannot be modified in its current state/)
      assert.equal((await Secret.update('e2e-js', `${KEY}-2`)).version, 2)
      const pages = Secret.list({ limit: 1 })
      const names = []
      while (pages.hasNext) names.push(...(await pages.nextItems()).map((one) => one.name))
      assert.deepEqual(names, ['e2e-js'])
      assert.equal((await Secret.getInfo(made.secretId)).version, 2)
      assert.equal(await Secret.exists('none'), false)
      assert.equal(await Secret.destroy('none'), false)
    } finally {
      assert.equal(await Secret.destroy(made.secretId), true)
    }
  },
  async placeholder() {
    const s = await ruled(`Bearer ${Secret.fill('late-js')}`)
    try {
      assert.match(await seen(s, 'no such secret'), /"code":502/)
      await Secret.create('late-js', `${KEY}-early`)
      assert.equal(await seen(s, '-early'), `api.example Bearer ${KEY}-early`)
    } finally {
      await Secret.destroy('late-js')
      await s.kill()
    }
  },
  async late_rules() {
    const s = await Sandbox.create({ timeoutMs: 120_000, network: { denyOut: ['0.0.0.0/0'], allowOut: ['api.example'] } })
    try {
      await s.updateNetwork({
        denyOut: ['0.0.0.0/0'],
        allowOut: ['api.example'],
        rules: { 'api.example': [{ transform: { headers: { Authorization: `Bearer ${KEY}` } } }] },
      })
      let out
      for (let i = 0; i < 100; i++) {
        out = (await s.commands.run('curl -sS --max-time 20 https://api.example/who 2>&1 || true')).stdout
        if (out.includes(KEY)) break
        await pause(100) // egress follows by a watch
      }
      assert.equal(out.trim(), `api.example Bearer ${KEY}`)
    } finally {
      await s.kill()
    }
  },
}

const s = await Sandbox.create({
  timeoutMs: 300_000,
  network: {
    denyOut: ['0.0.0.0/0'],
    allowOut: ['api.example', 'plain.example'],
    rules: { 'api.example': [{ transform: { headers: { Authorization: `Bearer ${KEY}` } } }] },
  },
})
await s.files.write(CA, await readFile(trusted, 'utf8'))
for (const [name, run] of Object.entries(cases)) {
  const began = performance.now()
  let error = ''
  try {
    await run(s)
  } catch (err) {
    error = `${err.name}: ${err.message}`
  }
  console.log(JSON.stringify({ name, ok: !error, error, ms: Math.round(performance.now() - began) }))
}
await s.kill()
