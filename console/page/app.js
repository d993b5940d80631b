"use strict";
// The page shows what the server answers, as text: objects hold what strangers wrote.

const $ = (id) => document.getElementById(id);
const tabs = ["overview", "sandboxes", "pools", "gateways", "envs", "snapshots", "events"];
const hour = 3600_000;

// The token comes in the fragment once, and stays for reloads of this tab.
if (location.hash.length > 1) {
  sessionStorage.setItem("token", location.hash.slice(1));
  history.replaceState(null, "", location.pathname);
}
const token = sessionStorage.getItem("token") || "";
// The address of a later run, pasted into this tab, differs by its fragment alone.
addEventListener("hashchange", () => location.reload());

const view = { tab: "overview", offset: 0, search: "", total: 0, shown: 0, mayPatch: false, mayOpen: false };
const samples = [];
let opened = null; // the sandbox that the dialog shows

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { Authorization: "Bearer " + token, ...options.headers } });
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer;
}

function element(name, text, className) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

function banner(text) {
  $("banner").textContent = text;
  $("banner").hidden = !text;
}

// refresh reads what is shown. Only one read is under way; a change meanwhile causes one
// more.
let reading = false, again = false;
async function refresh() {
  if (reading) { again = true; return; }
  reading = true;
  try {
    const o = await (await ask("api/overview")).json();
    banner(o.away ? `The API server does not answer since ${new Date(o.away).toLocaleTimeString()}: what is shown is as of then. (${o.awayWhy})`
      : o.reading ? "Reading " + o.reading.join(", ") + " …" : "");
    Object.assign(view, { mayPatch: o.mayPatch, mayOpen: o.mayOpen });
    sample(o);
    if (view.tab === "overview") showOverview(o);
    else await showTable();
    buttons();
  } catch (error) {
    banner(error instanceof TypeError ? "The console does not answer: is `sandlane console` still running?" : error.message);
  }
  reading = false;
  if (again) { again = false; refresh(); }
}

function showOverview(o) {
  const numbers = [["idle", o.idle + " of " + o.wanted], ["requests wait", o.waiting]];
  for (const phase of ["Running", "Paused", "Pending", "Starting", "Ending", "Ended"]) numbers.push([phase.toLowerCase(), o.phases[phase] || 0]);
  $("numbers").replaceChildren(...numbers.map(([name, value]) => {
    const li = element("li");
    li.append(element("b", value), element("span", name));
    return li;
  }));
  const findings = o.findings || [];
  $("findings").replaceChildren(...findings.map((f) => {
    const li = element("li", undefined, f.level);
    li.append(element("strong", f.about), ": " + f.text);
    if (f.do) li.append(element("small", "→ " + f.do));
    return li;
  }));
  if (!findings.length) $("findings").append(element("li", "Nothing is wrong as far as is known.", "ok"));
  plot();
}

// sample keeps an hour, at most one a second: the later one.
function sample(o) {
  const now = Date.now();
  if (samples.length && now - samples.at(-1).at < 900) samples.pop();
  samples.push({ at: now, idle: o.idle, waiting: o.waiting, recent: o.recent });
  while (samples[0].at < now - hour) samples.shift();
}

function plot() {
  const names = { idle: "idle pods", waiting: "requests that wait", recent: "sandboxes by first requests, a minute" };
  const now = Date.now(), from = Math.min(samples[0].at, now - 60_000);
  const top = Math.max(1, ...samples.flatMap((s) => Object.keys(names).map((k) => s[k])));
  $("plot").replaceChildren(...Object.keys(names).map((k) => {
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    line.setAttribute("class", k);
    const points = samples.flatMap((s, i) => [[s.at, s[k]], [samples[i + 1]?.at ?? now, s[k]]]); // it holds until the next
    line.setAttribute("points", points.map(([at, v]) => `${(600 * (at - from) / (now - from)).toFixed(1)},${(116 - 110 * v / top).toFixed(1)}`).join(" "));
    return line;
  }));
  $("legend").replaceChildren(...Object.entries(names).map(([k, name]) => element("span", name, k)),
    element("span", `the last ${Math.max(1, Math.round((now - from) / 60_000))} min, up to ${top}`));
}

async function showTable() {
  const { tab, search, offset } = view;
  const t = await (await ask(`api/table/${tab}?` + new URLSearchParams({ q: search, offset }))).json();
  // The user has gone on meanwhile, and the next read is asked for.
  if (tab !== view.tab || search !== view.search || offset !== view.offset) return;
  Object.assign(view, { total: t.total, offset: t.offset, shown: t.rows.length });
  $("refused").hidden = !t.refused;
  $("refused").textContent = t.refused || "";
  const head = element("tr");
  head.append(...t.columns.map((c) => element("th", c)));
  document.querySelector("thead").replaceChildren(head);
  lay(document.querySelector("tbody"), t);
  $("range").textContent = t.total === 0 ? (t.all === 0 ? "none" : `none of ${t.all} match`)
    : `${t.offset + 1}–${t.offset + t.rows.length} of ${t.total}` + (t.total === t.all ? "" : ` (${t.all} in all)`);
  $("back").disabled = t.offset === 0;
  $("on").disabled = t.offset + t.rows.length >= t.total;
}

// lay shows the rows of a table. A row that is there already stays the same element, so that a
// click that is under way and the focus stay with it.
function lay(body, t) {
  const focused = document.activeElement, keys = new Set(t.rows.map((r) => r.key));
  for (const tr of [...body.rows]) if (!keys.has(tr.dataset.key)) tr.remove();
  const there = new Map([...body.rows].map((tr) => [tr.dataset.key, tr]));
  let at = body.firstElementChild;
  for (const r of t.rows) {
    const tr = there.get(r.key) || rowOf(r, t.columns);
    tr.className = r.level || "";
    r.cells.forEach((text, i) => { if (tr.cells[i].textContent !== text) tr.cells[i].textContent = text; });
    if (tr === at) at = at.nextElementSibling;
    else body.insertBefore(tr, at);
  }
  if (focused !== document.activeElement && body.contains(focused)) focused.focus();
}

function rowOf(r, columns) {
  const tr = element("tr");
  tr.tabIndex = 0;
  tr.dataset.key = r.key;
  if (r.sandbox) tr.dataset.sandbox = r.sandbox;
  tr.append(...columns.map((column) => {
    const td = element("td");
    td.dataset.column = column;
    return td;
  }));
  return tr;
}

function choose(tab) {
  Object.assign(view, { tab, offset: 0, search: "" });
  $("search").value = "";
  $("overview").hidden = tab !== "overview";
  $("list").hidden = tab === "overview";
  $("search").hidden = tab === "overview";
  document.querySelector("tbody").replaceChildren();
  for (const b of $("tabs").children) b.toggleAttribute("aria-current", false);
  $("tabs").children[tabs.indexOf(tab)].setAttribute("aria-current", "page");
  refresh();
}

function turn(by) {
  const rows = 50, to = view.offset + by * rows;
  if (view.tab === "overview" || to < 0 || to >= view.total) return;
  view.offset = to;
  refresh();
}

async function open(id) {
  opened = { id, uid: "", over: true, paused: false };
  $("detail-title").textContent = id;
  $("text").textContent = "reading …";
  $("outcome").textContent = "";
  buttons();
  if (!$("detail").open) $("detail").showModal();
  await read();
}

async function read() {
  const of = opened;
  $("sure").hidden = true; // what was asked for was of the sandbox as shown
  try {
    Object.assign(of, await (await ask("api/explain/" + encodeURIComponent(of.id))).json());
  } catch (error) {
    of.text = error.message;
  }
  if (of !== opened) return;
  $("text").textContent = of.text;
  buttons();
}

function buttons() {
  const can = { end: true, pause: !opened?.paused, resume: !!opened?.paused, open: true };
  for (const b of document.querySelectorAll("[data-action]")) {
    const opens = b.dataset.action === "open", may = opens ? view.mayOpen : view.mayPatch;
    b.disabled = !may || !opened || opened.over || !can[b.dataset.action];
    b.title = may ? "" : opens ? "your rights do not allow to open ports, or the console does not know the domain" : "your rights do not allow to change sandboxes";
  }
}

// Each action is asked for once more, with what it does.
const does = {
  end: "its files and processes are lost", pause: "its processes stop and requests wait or are refused", resume: "its processes run again",
  open: "whoever has the link first, within a minute, uses that port until the sandbox ends",
};
function askFirst(action) {
  const what = action === "open" ? `open port ${$("port").value} of` : action;
  $("sure").querySelector("strong").textContent = `${what} ${opened.id}? ${does[action]}.`;
  $("yes").textContent = `Yes, ${action} it`;
  $("yes").dataset.does = action;
  $("sure").hidden = false;
  $("no").focus();
}

async function act(action) {
  const of = opened;
  $("sure").hidden = true;
  $("outcome").textContent = action + " …";
  try {
    const answer = await ask(`api/sandboxes/${encodeURIComponent(of.id)}/${action}`, { method: "POST", body: JSON.stringify({ uid: of.uid, port: Number($("port").value) }) });
    const link = answer.status === 200 ? (await answer.json()).link : "";
    if (of === opened) $("outcome").textContent = action + ": done";
    if (of === opened && link) {
      const a = element("a", "open it once, within a minute");
      Object.assign(a, { href: link, target: "_blank", rel: "noopener noreferrer" });
      $("outcome").append(a);
      a.focus();
    }
  } catch (error) {
    if (of === opened) $("outcome").textContent = action + ": " + error.message;
  }
  if (of === opened) await read();
}

// listen follows the stream of changes; it is read by fetch, since an EventSource cannot
// send the token.
async function listen() {
  for (;;) {
    try {
      const reader = (await ask("api/changes")).body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done } = await reader.read();
        if (done) break;
        if (!document.hidden) refresh();
      }
    } catch { /* refresh says what is wrong */ }
    await refresh();
    await new Promise((wake) => setTimeout(wake, 2000));
  }
}

for (const [i, tab] of tabs.entries()) {
  const b = element("button", tab[0].toUpperCase() + tab.slice(1));
  b.title = "key " + (i + 1);
  b.addEventListener("click", () => choose(tab));
  $("tabs").append(b);
}
let typing;
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => { Object.assign(view, { search: $("search").value, offset: 0 }); refresh(); }, 150);
});
$("back").addEventListener("click", () => turn(-1));
$("on").addEventListener("click", () => turn(1));
document.querySelector("tbody").addEventListener("click", (e) => {
  const id = e.target.closest("tr")?.dataset.sandbox;
  if (id && !getSelection().toString()) open(id);
});
for (const b of document.querySelectorAll("[data-action]")) b.addEventListener("click", () => askFirst(b.dataset.action));
$("again").addEventListener("click", read);
$("close").addEventListener("click", () => $("detail").close());
// The browser tells of a close a moment later, when the next sandbox may be open.
$("detail").addEventListener("close", () => { if (!$("detail").open) opened = null; });
$("yes").addEventListener("click", () => act($("yes").dataset.does));
$("no").addEventListener("click", () => { $("sure").hidden = true; });
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || $("detail").open) return;
  if (e.target === $("search")) {
    if (e.key === "Escape" || e.key === "Enter") $("search").blur();
    return;
  }
  const rows = [...document.querySelectorAll("tbody tr")], at = rows.indexOf(document.activeElement);
  if (e.key >= "1" && e.key <= String(tabs.length)) choose(tabs[e.key - 1]);
  else if (e.key === "/" && view.tab !== "overview") { e.preventDefault(); $("search").focus(); }
  else if (e.key === "j" || e.key === "k") rows[Math.max(0, Math.min(rows.length - 1, at + (e.key === "j" ? 1 : -1)))]?.focus();
  else if (e.key === "n") turn(1);
  else if (e.key === "p") turn(-1);
  else if (e.key === "Enter" && at >= 0 && rows[at].dataset.sandbox) open(rows[at].dataset.sandbox);
});
choose("overview");
listen();
