"""Cases of who may reach the ports of a sandbox."""

from suite import a, case, equal, fetch, made, serve


@case
async def access_secure(sbx):
    host = sbx.get_host(49983)
    equal(fetch(host, "/envs")[0], 401)
    equal(fetch(host, "/envs", {"X-Access-Token": "wrong"})[0], 401)
    equal(fetch(host, "/init")[0], 404)


@case
async def access_public(sbx):
    await a(sbx.files.write("index.html", "served by " + sbx.sandbox_id))
    await serve(sbx, 8000)
    equal(fetch(sbx.get_host(8000)), (200, "served by " + sbx.sandbox_id))
    equal(fetch(sbx.get_host(8001))[0], 502)


@case
async def access_private(sbx):
    async with made(network={"allow_public_traffic": False}) as s:
        await a(s.files.write("index.html", "private"))
        await serve(s, 8000)
        host, token = s.get_host(8000), s.traffic_access_token
        equal(fetch(host)[0], 403)
        equal(fetch(host, headers={"e2b-traffic-access-token": "wrong"})[0], 403)
        equal(fetch(host, headers={"e2b-traffic-access-token": token}), (200, "private"))
