// Cases of pauses, resumes and snapshots.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { Sandbox, e2b, fails, fetchHost, folder, gone, hasText, made, serve, until } from './suite.mjs'

// The SDKs that can give the memory up; for the others the REST API is asked.
const [, minor] = JSON.parse(readFileSync(path.join(folder, 'node_modules/e2b/package.json'))).version.split('.').map(Number)
const keepsFiles = minor >= 50

async function post(at, body) {
  return fetch(process.env.E2B_API_URL + at, {
    method: 'POST', body: JSON.stringify(body), headers: { 'X-API-KEY': process.env.E2B_API_KEY, 'Content-Type': 'application/json' },
  })
}

// pauseFiles pauses without the memory.
async function pauseFiles(s) {
  if (keepsFiles) return s.pause({ keepMemory: false })
  const answer = await post(`/sandboxes/${s.sandboxId}/pause`, { memory: false })
  assert([204, 409].includes(answer.status), `pause: ${answer.status} ${await answer.text()}`)
  return answer.status === 204
}

// createPausingFiles makes a sandbox that is paused so at its timeout.
async function createPausingFiles() {
  if (keepsFiles) return Sandbox.create({ timeoutMs: 120_000, lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } })
  const answer = await post('/v2/sandboxes', { templateID: 'base', timeout: 120, autoPause: true, autoPauseMemory: false })
  assert.equal(answer.status, 201)
  return Sandbox.connect((await answer.json()).sandboxID)
}

export default {
  // A process counts on where it stood: it is the same one, and did not run meanwhile. A
  // terminal and a server go on too.
  async pause_resume() {
    await made({ timeoutMs: 120_000 }, async (s) => {
      await s.files.write('kept.txt', 'kept')
      const h = await s.commands.run('i=0; while :; do echo $((i+=1)) > count; sleep 0.05; done', { background: true, timeoutMs: 0 })
      h.wait().catch(() => {}) // its stream is cut off
      await until('a count', () => s.files.exists('count'))
      const terminal = await s.pty.create({ cols: 20, rows: 10, onData: () => {} })
      terminal.wait().catch(() => {}) // its stream is cut off
      await s.pty.sendInput(terminal.pid, new TextEncoder().encode('word=kept-in-memory\n'))
      await serve(s, 8000)
      assert.equal(await s.pause(), true)
      assert.equal((await Sandbox.getInfo(s.sandboxId)).state, 'paused')
      assert.equal(await s.isRunning(), false)
      gone(await fails(e2b.SandboxError, () => s.commands.run('true')))
      await fails(e2b.SandboxError, () => s.setTimeout(60_000))
      const again = await Sandbox.connect(s.sandboxId, { timeoutMs: 300_000 })
      const info = await again.getInfo()
      assert.equal(info.state, 'running')
      const left = (info.endAt - Date.now()) / 1000
      assert(left > 280 && left <= 302, `it ends in ${left} s`)
      assert.equal(await again.isRunning(), true)
      assert.equal(await again.files.read('kept.txt'), 'kept')
      assert((await again.commands.list()).some((p) => p.pid === h.pid))
      const before = Number(await again.files.read('count'))
      await until('counting', async () => Number(await again.files.read('count')) > before)
      await again.pty.sendInput(terminal.pid, new TextEncoder().encode('echo $word > said\n'))
      await until('the terminal to answer', () => hasText(again, 'said', 'kept-in-memory'))
      assert.deepEqual(await fetchHost(again.getHost(8000), '/kept.txt'), { status: 200, text: 'kept' })
    })
  },
  async pause_twice() {
    const s = await Sandbox.create()
    assert.equal(await s.betaPause(), true)
    assert.equal(await s.pause(), false)
    assert.equal(await Sandbox.kill(s.sandboxId), true)
    assert.equal(await Sandbox.kill(s.sandboxId), false)
    await fails(e2b.SandboxError, () => Sandbox.connect(s.sandboxId))
  },
  // The memory is given up: files and variables are in another pod, the process is not.
  async pause_files() {
    await made({ timeoutMs: 120_000, envs: { MINE: 'mine' } }, async (s) => {
      await s.files.write('kept/file.txt', 'kept')
      const h = await s.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
      h.wait().catch(() => {}) // its stream is cut off
      assert.equal(await pauseFiles(s), true)
      assert.equal(await pauseFiles(s), false)
      assert.equal((await Sandbox.getInfo(s.sandboxId)).state, 'paused')
      gone(await fails(e2b.SandboxError, () => s.commands.run('true')))
      const again = await Sandbox.connect(s.sandboxId, { timeoutMs: 300_000 })
      assert.equal((await again.getInfo()).state, 'running')
      assert.equal((await again.commands.run('cat kept/file.txt; echo $MINE')).stdout, 'keptmine\n')
      assert.equal((await again.commands.list()).length, 0)
      assert.equal(await pauseFiles(again), true, 'it is paused a second time')
      await Sandbox.kill(s.sandboxId)
      await fails(e2b.SandboxError, () => Sandbox.connect(s.sandboxId))
    })
  },
  async snapshots() {
    await made({ timeoutMs: 120_000, envs: { MINE: 'first' } }, async (s) => {
      await s.files.write('kept/deep/file.txt', 'kept')
      await s.commands.run('ln -s file.txt kept/deep/link; chmod 640 kept/deep/file.txt')
      const h = await s.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
      h.wait().catch(() => {}) // its stream is cut off
      const snap = await s.createSnapshot()
      assert((await s.commands.list()).some((p) => p.pid === h.pid))
      await s.files.write('kept/deep/file.txt', 'written later')
      const found = await Sandbox.listSnapshots({ sandboxId: s.sandboxId }).nextItems()
      assert.deepEqual(found.map((one) => one.snapshotId), [snap.snapshotId])
      const two = await Sandbox.create(snap.snapshotId, { timeoutMs: 120_000, envs: { MINE: 'second' } })
      try {
        assert.notEqual(two.sandboxId, s.sandboxId)
        const out = await two.commands.run('cat kept/deep/link; stat -c %a kept/deep/file.txt; echo $MINE')
        assert.equal(out.stdout, 'kept640\nsecond\n')
        assert.equal((await two.commands.list()).length, 0)
      } finally {
        await two.kill()
      }
      assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), true)
      assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), false)
      await fails(e2b.SandboxError, () => Sandbox.create(snap.snapshotId))
    })
  },
  async auto_pause_resume() {
    const paused = async (s) => (await Sandbox.getInfo(s.sandboxId)).state === 'paused'
    await made({ timeoutMs: 3000, lifecycle: { onTimeout: 'pause', autoResume: true } }, async (s) => {
      const h = await s.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
      h.wait().catch(() => {}) // its stream is cut off
      await until('the pause', () => paused(s), 30)
      assert.equal((await s.commands.run('echo back')).stdout, 'back\n')
      assert((await s.commands.list()).some((p) => p.pid === h.pid))
      const info = await s.getInfo()
      assert.equal(info.state, 'running')
      assert(info.endAt - Date.now() > 250_000, `it ends at ${info.endAt}`)
    })
    await made({ timeoutMs: 3000, lifecycle: { onTimeout: 'pause', autoResume: false } }, async (s) => {
      await until('the pause', () => paused(s), 30)
      gone(await fails(e2b.SandboxError, () => s.commands.run('true')))
    })
  },
  async auto_pause_files() {
    const s = await createPausingFiles()
    try {
      await s.files.write('kept.txt', 'kept')
      await s.setTimeout(1000)
      await until('the pause', async () => (await Sandbox.getInfo(s.sandboxId)).state === 'paused', 60)
      const again = await Sandbox.connect(s.sandboxId, { timeoutMs: 300_000 })
      assert.equal(await again.files.read('kept.txt'), 'kept')
      assert.equal((await again.commands.list()).length, 0)
    } finally {
      await s.kill()
    }
  },
  async list_state() {
    const mine = { set: 'states', by: String(process.pid) }
    await made({ metadata: mine }, (one) => made({ metadata: mine }, (two) => made({ metadata: mine }, async (three) => {
      await one.pause()
      await three.pause()
      for (const [state, want] of [[['paused'], [one, three]], [['running'], [two]], [['running', 'paused'], [one, two, three]]]) {
        const pages = Sandbox.list({ query: { metadata: mine, state }, limit: 1 })
        const ids = []
        while (pages.hasNext) ids.push(...(await pages.nextItems()).map((i) => i.sandboxId))
        assert.deepEqual(ids.sort(), want.map((s) => s.sandboxId).sort())
      }
    })))
  },
}
