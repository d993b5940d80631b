// Cases of templates that E2B's JavaScript SDK builds.
//
// Usage: node template.mjs FOLDER IMAGE, where FOLDER holds node_modules with the SDK, and
// IMAGE is of the tests' registry. Each case gives one line of JSON as those of cases.mjs do.
import assert from 'node:assert/strict'
import { mkdtemp, mkdir, symlink, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import os from 'node:os'
import path from 'node:path'

const [folder, IMAGE] = process.argv.slice(2)
const { Sandbox, Template } = createRequire(path.resolve(folder, 'package.json'))('e2b')
const NAME = `tried-js-${path.basename(folder).toLowerCase()}`
let built, sbx

// context makes a folder with files of a few kinds.
async function context() {
  const dir = await mkdtemp(path.join(os.tmpdir(), 'sandlane-template-'))
  await mkdir(path.join(dir, 'app', 'deep'), { recursive: true })
  await writeFile(path.join(dir, 'one.txt'), 'one')
  await writeFile(path.join(dir, 'app', 'main.sh'), 'echo main')
  await symlink('../main.sh', path.join(dir, 'app', 'deep', 'link'))
  return dir
}

const cases = {
  async build() {
    const template = Template({ fileContextPath: await context() })
      .fromImage(IMAGE)
      .runCmd('echo built > /tmp/by-user; id -un > /tmp/who')
      .runCmd('mkdir -p /opt; echo first > /opt/text; rm /srv/old/removed', { user: 'root' })
      .copy('one.txt', '/srv/copied/')
      .copy('app', 'app', { mode: 0o755 })
      .setEnvs({ COLOUR: 'green', LONGER: '$GREETING there' })
      .setWorkdir('/work')
      .setUser('other')
      .runCmd('pwd > /tmp/where')
      .setStartCmd('/srv/echo', 'cat /opt/text')
    built = await Template.build(template, { alias: NAME, onBuildLogs: (entry) => console.error(`${entry}`) })
    assert(await Template.aliasExists(NAME), 'it is ready, and its name leads nowhere')
  },
  async files() {
    sbx = await Sandbox.create(NAME, { timeoutMs: 300_000 })
    const read = async (at) => (await sbx.files.read(at)).trim()
    for (const [at, want] of Object.entries({
      '/tmp/by-user': 'built', '/tmp/who': 'user', '/opt/text': 'first', '/srv/copied/one.txt': 'one',
      '/srv/app/main.sh': 'echo main', '/tmp/where': '/work', '/srv/old/kept': 'of the base',
    })) {
      assert.equal(await read(at), want, at)
    }
    assert(!(await sbx.files.exists('/srv/old/removed')))
    const out = (await sbx.commands.run("stat -c '%U %a' /srv/app/main.sh /srv/copied/one.txt; cat /srv/app/deep/link")).stdout
    assert.deepEqual(out.trim().split('\n'), ['user 755', 'user 644', 'echo main'])
  },
  async environment() {
    const out = (await sbx.commands.run('echo $COLOUR; echo $LONGER; pwd; id -un')).stdout
    assert.deepEqual(out.trim().split('\n'), ['green', 'hello there', '/work', 'other'])
  },
  async server() {
    const answer = await fetch(`${process.env.E2B_SANDBOX_URL}/sandboxes/${sbx.sandboxId}/8000/`, { signal: AbortSignal.timeout(20_000) })
    assert.equal(answer.status, 200)
  },
  async tags() {
    const { buildId, tags } = await Template.assignTags(`${NAME}:default`, ['stable', 'v1'])
    assert.equal(buildId, built.buildId)
    assert.deepEqual(tags.sort(), ['stable', 'v1'])
    await (await Sandbox.create(`${NAME}:stable`, { timeoutMs: 60_000 })).kill()
    assert.deepEqual((await Template.getTags(NAME)).map((t) => t.tag).sort(), ['default', 'stable', 'v1'])
    await Template.removeTags(NAME, 'stable')
    await assert.rejects(Sandbox.create(`${NAME}:stable`), /does not exist/)
  },
  async cached() {
    const timed = async (options) => {
      const began = performance.now()
      const template = Template().fromImage(IMAGE).runCmd('cat /proc/sys/kernel/random/uuid > /tmp/once; sleep 2')
      await Template.build(template, { alias: `${NAME}-cached`, ...options })
      const took = (performance.now() - began) / 1000
      const made = await Sandbox.create(`${NAME}-cached`, { timeoutMs: 60_000 })
      const once = await made.files.read('/tmp/once')
      await made.kill()
      return { took, once }
    }
    const [first, same, anew] = [await timed({}), await timed({}), await timed({ skipCache: true })]
    console.error(`TIMES a build took ${first.took.toFixed(1)} s, the same again ${same.took.toFixed(1)} s`)
    assert.equal(first.once, same.once)
    assert.notEqual(first.once, anew.once)
  },
  async deletion() {
    await sbx.kill()
    const answer = await fetch(`${process.env.E2B_API_URL}/templates/${built.templateId}`, { method: 'DELETE', headers: { 'X-API-KEY': process.env.E2B_API_KEY } })
    assert.equal(answer.status, 204)
  },
}

for (const [name, run] of Object.entries(cases)) {
  const began = performance.now()
  let error = ''
  try {
    await run()
  } catch (err) {
    error = `${err.name}: ${err.message}`
  }
  console.log(JSON.stringify({ name, ok: !error, error, ms: Math.round(performance.now() - began) }))
}
process.exit(0)
