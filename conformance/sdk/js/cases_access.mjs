// Cases of who may reach the ports of a sandbox.
import assert from 'node:assert/strict'
import { fetchHost, made, serve } from './suite.mjs'

export default {
  async access_secure(s) {
    const host = s.getHost(49983)
    assert.equal((await fetchHost(host, '/envs')).status, 401)
    assert.equal((await fetchHost(host, '/envs', { 'X-Access-Token': 'wrong' })).status, 401)
    assert.equal((await fetchHost(host, '/init')).status, 404)
  },
  async access_public(s) {
    await s.files.write('index.html', 'served by ' + s.sandboxId)
    await serve(s, 8000)
    assert.deepEqual(await fetchHost(s.getHost(8000)), { status: 200, text: 'served by ' + s.sandboxId })
    assert.equal((await fetchHost(s.getHost(8001))).status, 502)
  },
  async access_private() {
    await made({ network: { allowPublicTraffic: false } }, async (s) => {
      await s.files.write('index.html', 'private')
      await serve(s, 8000)
      const ask = (headers) => fetchHost(s.getHost(8000), '/', headers)
      assert.equal((await ask({})).status, 403)
      assert.equal((await ask({ 'e2b-traffic-access-token': 'wrong' })).status, 403)
      assert.deepEqual(await ask({ 'e2b-traffic-access-token': s.trafficAccessToken }), { status: 200, text: 'private' })
    })
  },
}
