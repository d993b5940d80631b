// Cases of errors: each is the class that the SDK has for it.
import assert from 'node:assert/strict'
import { ELSEWHERE, MISSING, Sandbox, e2b, fails, gone } from './suite.mjs'

export default {
  async error_not_found(s) {
    await fails(e2b.NotFoundError, () => s.files.read('/nowhere'))
    await fails(e2b.NotFoundError, () => Sandbox.getInfo(MISSING))
    await fails(e2b.NotFoundError, () => Sandbox.connect(MISSING))
  },
  async error_auth() {
    await fails(e2b.AuthenticationError, () => Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }))
  },
  // Twenty wrong keys at once are too many, and one more each second. From an
  // address of its own, so that other cases are not limited.
  async error_rate_limit() {
    const opts = { apiKey: 'e2b_' + '0'.repeat(40), apiUrl: ELSEWHERE }
    const said = await Promise.all(Array.from({ length: 40 }, () => Sandbox.getInfo(MISSING, opts).then(() => null, (err) => err)))
    const limited = said.filter((err) => err instanceof e2b.RateLimitError).length
    const wrong = said.filter((err) => err instanceof e2b.AuthenticationError).length
    assert(limited + wrong === 40 && limited >= 5 && wrong >= 20, said.map((err) => `${err?.name}: ${err?.message}`).join('; '))
  },
  async error_gone() {
    const s = await Sandbox.create()
    await s.commands.run('true')
    await s.kill()
    for (let i = 0; i < 3; i++) gone(await fails(e2b.SandboxError, () => s.commands.run('true')))
    gone(await fails(e2b.SandboxError, () => s.files.read('x')))
  },
  // Killed from elsewhere while a command runs, which says something or nothing.
  async error_killed() {
    for (const command of ['sleep 1000', 'while :; do echo x; sleep 0.1; done']) {
      const s = await Sandbox.create()
      const handle = await s.commands.run(command, { background: true })
      const waiting = fails(e2b.SandboxError, () => handle.wait())
      waiting.catch(() => {}) // looked at below
      await Sandbox.kill(s.sandboxId)
      const killed = performance.now()
      gone(await waiting)
      const took = performance.now() - killed
      assert(took < 30_000, `the SDK knew ${took} ms after the kill`) // a command of its own would end after 60 s
    }
  },
  async error_template() {
    await fails(e2b.SandboxError, () => Sandbox.create('no-such-template'))
  },
}
