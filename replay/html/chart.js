// Draws the chart, and does the filters and the zone. All texts go in as text, never as markup; nothing is fetched.
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const [chart, head, body, tip] = ["chart", "head", "body", "tip"].map(byId);
const articles = [...document.querySelectorAll("article")];
const rows = [...byId("lanes").rows];
const AXIS = 22, GENERATION = 13, ROW = 16, ROWS_MAX = 6, LANE = 36, BAR_Y = 19, BAR = 13, SPAN_MIN_MS = 20, COUNTS_MAX = 1500, SENTENCES_ON_PAPER = 60;
const STEPS = [1, 5, 10, 50, 100, 500, 1e3, 5e3, 15e3, 6e4, 3e5, 9e5, 36e5, 108e5, 216e5, 864e5, 6048e5, 2592e6, 31536e6];
const ENDS = {"left": "○", "planned": "○", "removed": "□", "came-back": "|"};
const whole = Math.max(1000, data.end - data.begin), margin = whole * 0.01;
const all = {from: data.begin - margin, to: data.end + margin};
// Lanes show partitions of members here; another page on these parts (drills/report) has words of its own.
const words = {none: "not a member", unit: "partition", silent: "silent", ...data.words};
let view = {...all}, width = 0, zone = "UTC", clocks = null, selected = -1, laneOf = [], waits = false;

const incidents = data.incidents.map(([begin, end, lanes], n) =>
  ({n, begin, end: end ?? data.end, lanes, article: articles[n], row: 0, shown: true,
    family: [...articles[n].classList].find((each) => each.startsWith("f-")) ?? "",
    kind: articles[n].dataset.kind, grade: articles[n].querySelector(".grade").textContent}));
const lanes = data.lanes.map((lane, n) => ({...lane, n, text: (lane.name + " " + lane.where).toLowerCase(), shown: true}));

// ---- times ----

const two = (n) => String(n).padStart(2, "0");
const zoneName = () => zone === "local" ? Intl.DateTimeFormat().resolvedOptions().timeZone || "local time" : zone;
// By how many minutes the zone's clocks are ahead of UTC at a time.
function ahead(ms) {
  if (zone === "UTC") return 0;
  if (zone === "local") return -new Date(ms).getTimezoneOffset();
  const told = {};
  for (const each of clocks.formatToParts(ms)) told[each.type] = Number(each.value);
  const there = Date.UTC(told.year, told.month - 1, told.day, told.hour, told.minute, told.second);
  return Math.round((there - Math.floor(ms / 1000) * 1000) / 6e4);
}
function parts(ms) {
  const minutes = ahead(ms), size = Math.abs(minutes), there = new Date(ms + minutes * 6e4).toISOString();
  const offset = (minutes < 0 ? "-" : "+") + two(Math.floor(size / 60)) + ":" + two(size % 60);
  return [there.slice(0, 10), there.slice(11, 23), zone === "UTC" ? "UTC" : "UTC" + offset];
}
const stamp = (ms) => parts(ms).join(" ");
function tellTimes() {
  for (const each of document.querySelectorAll("time")) each.textContent = stamp(Date.parse(each.dateTime));
}

// ---- drawing ----

const x = (ms) => (ms - view.from) / (view.to - view.from) * width;
function add(parent, name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
}
// Boxes of one class as one path; those that fall within the same pixel are one.
function boxes(spans, y, height) {
  let path = "", a = null, b = 0;
  const flush = () => {
    if (a !== null) path += `M${a.toFixed(1)} ${y}h${Math.max(1, b - a - (b - a > 3 ? 1 : 0)).toFixed(1)}v${height}h-${Math.max(1, b - a - (b - a > 3 ? 1 : 0)).toFixed(1)}z`;
  };
  for (const span of spans) {
    if (span[1] < view.from || span[0] > view.to) continue;
    const left = Math.max(-9, x(span[0])), right = Math.min(width + 9, x(span[1]));
    if (a !== null && left <= b + 0.5 && (right - left < 2 || b - a < 2)) { b = Math.max(b, right); continue; }
    flush();
    a = left; b = right;
  }
  flush();
  return path;
}
function paths(parent, name, d) {
  if (d) add(parent, "path", {class: name, d});
}
function pack() {
  const ends = [], least = whole / 60;
  for (const each of [...incidents].sort((a, b) => a.begin - b.begin || b.end - a.end)) {
    let row = ends.findIndex((end) => end <= each.begin);
    if (row < 0) row = ends.length < ROWS_MAX ? ends.length : ROWS_MAX - 1;
    ends[row] = Math.max(each.end, each.begin + least);
    each.row = row;
  }
  return Math.max(1, ends.length);
}
const rowCount = pack();

function ticks() {
  const step = STEPS.find((each) => (view.to - view.from) / each <= Math.max(2, width / 110)) ?? STEPS.at(-1);
  const shift = ahead(view.from) * 6e4;
  const found = [];
  for (let at = Math.ceil((view.from + shift) / step) * step - shift; at <= view.to && found.length < 50; at += step) found.push(at);
  return {step, found};
}
function drawHead(height) {
  head.replaceChildren();
  const bottom = AXIS + rowCount * ROW + GENERATION;
  head.setAttribute("viewBox", `0 0 ${width} ${bottom}`);
  const {step, found} = ticks();
  let dayBefore = "";
  for (const at of found) {
    const [day, clock] = parts(at);
    const label = step >= 864e5 ? day : step >= 6e4 ? clock.slice(0, 5) : step >= 1e3 ? clock.slice(0, 8) : clock;
    add(head, "line", {class: "tick", x1: x(at), x2: x(at), y1: AXIS - 6, y2: AXIS});
    if (x(at) < width - 60) add(head, "text", {x: x(at) + 3, y: AXIS - 9}, day === dayBefore || step >= 864e5 ? label : day.slice(5) + " " + label);
    add(body, "line", {class: "tick", x1: x(at), x2: x(at), y1: 0, y2: height});
    dayBefore = day;
  }
  let d = "";
  for (const [at] of data.takeovers) if (at >= view.from && at <= view.to) d += `M${x(at) - 4} ${AXIS - 5}h8l-4 6z`;
  paths(head, "takeover", d);
  for (const [from, to, generation] of data.bands) {
    const left = Math.max(0, x(from)), label = `generation ${generation}`;
    if (to < view.from || from > view.to) continue;
    const room = Math.min(width, x(to)) - left;
    if (room > 80) add(head, "text", {x: left + 3, y: bottom - 3}, label);
    else if (room > 24) add(head, "text", {x: left + 3, y: bottom - 3}, String(generation));
  }
  incidents.forEach(drawIncident);
}
// A box, and the name of its kind in it, or after it, if there is room.
function drawIncident(each) {
  if (!each.shown || each.end < view.from || each.begin > view.to) return;
  const left = Math.max(-9, x(each.begin)), right = Math.max(left + 6, Math.min(width + 9, x(each.end))), y = AXIS + each.row * ROW;
  const next = incidents.find((other) => other.shown && other.row === each.row && other.begin > each.begin);
  const free = Math.min(width, next ? x(next.begin) : width) - right - 8, needs = each.kind.length * 6.5;
  const of = {class: `incident ${each.grade} ${each.family}${each.n === selected ? " on" : ""}`, "data-n": each.n};
  add(head, "rect", {...of, x: left, y: y + 2, width: right - left, height: ROW - 4, rx: 3});
  const isIn = Math.min(right, width) - Math.max(left, 0) > needs + 10;
  if (isIn || free > needs) add(head, "text", {class: isIn ? `in ${each.grade}` : "", x: isIn ? Math.max(left, 0) + 5 : right + 4, y: y + ROW - 4}, each.kind);
}
function drawBody() {
  laneOf = lanes.filter((lane) => lane.shown);
  const height = Math.max(LANE, laneOf.length * LANE + 4);
  body.replaceChildren();
  body.setAttribute("viewBox", `0 0 ${width} ${height}`);
  paths(body, "band", boxes(data.bands.filter((band) => band[2] % 2), 0, height));
  paths(body, "unstable", boxes(data.unstable, 0, height));
  if (selected >= 0) {
    const each = incidents[selected];
    add(body, "rect", {class: `shade ${each.family}`, x: Math.max(-9, x(each.begin)), y: 0, height,
      width: Math.max(3, Math.min(width + 9, x(each.end)) - Math.max(-9, x(each.begin)))});
  }
  drawHead(height);
  let counts = 0;
  laneOf.forEach((lane, k) => {
    const y = k * LANE + BAR_Y;
    paths(body, "idle", boxes(lane.stretches.filter((each) => each[2] === 0), y + 4, BAR - 8));
    paths(body, "unknown", boxes(lane.stretches.filter((each) => each[2] === null), y, BAR));
    paths(body, "bar", boxes(lane.stretches.filter((each) => each[2] > 0), y, BAR));
    let d = "";
    for (const [from, to] of lane.silences) if (to >= view.from && from <= view.to)
      d += `M${Math.max(-9, x(from)).toFixed(1)} ${y + BAR / 2}H${Math.min(width + 9, x(to)).toFixed(1)}`;
    paths(body, "silent", d);
    for (const [from, to, count] of lane.stretches) {
      if (!count || lane.says || to < view.from || from > view.to || counts > COUNTS_MAX) continue;
      const left = Math.max(0, x(from)), right = Math.min(width, x(to));
      if (right - left > 20) { add(body, "text", {class: "count", x: (left + right) / 2, y: y + BAR - 3}, String(count)); counts += 1; }
    }
    drawEnds(lane, y);
    const began = Math.max(view.from, Math.min(lane.begin_ms, view.to));
    const most = Math.max(12, Math.floor(width / 7)), label = `${lane.name} · ${lane.where}`;
    const name = add(body, "text", {class: "name", x: Math.max(4, Math.min(x(began), width - 7 * Math.min(most, label.length))), y: y - 5},
      label.length > most ? label.slice(0, most - 1) + "…" : label);
    name.dataset.lane = lane.n;
  });
  let gaps = "";
  for (const at of data.missing) if (at >= view.from && at <= view.to) gaps += `M${x(at).toFixed(1)} 0V${height}`;
  paths(body, "gap", gaps);
}
function drawEnds(lane, y) {
  let lost = "", went = "", last = -99;
  const middle = y + BAR / 2;
  for (const [at, what] of lane.marks) {
    if (at < view.from || at > view.to || x(at) - last < 4) continue;
    last = x(at);
    if (!(what in ENDS)) lost += `M${last - 4} ${middle - 4}l8 8m-8 0l8 -8`;
    else if (ENDS[what] === "○") went += `M${last - 4} ${middle}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0`;
    else if (ENDS[what] === "□") went += `M${last - 4} ${middle - 4}h8v8h-8z`;
    else went += `M${last} ${y - 1}v${BAR + 2}`;
  }
  paths(body, "went", went);
  paths(body, "lost", lost);
}
function draw() {
  waits = false;
  drawBody();
  const text = `${stamp(view.from)} to ${stamp(view.to)}`;
  byId("range").textContent = zone === "UTC" ? text : `${text} (${zoneName()})`;
}
function redraw() {
  if (!waits) { waits = true; requestAnimationFrame(draw); }
}
function measure() {
  const now = chart.clientWidth;
  if (now && now !== width) { width = now; redraw(); }
}

// ---- zoom and pan ----

function show(from, to) {
  const size = Math.min(all.to - all.from, Math.max(SPAN_MIN_MS, to - from)), middle = (from + to) / 2;
  const begin = Math.max(all.from, Math.min(middle - size / 2, all.to - size));
  view = {from: begin, to: begin + size};
  redraw();
}
function zoom(factor, at = (view.from + view.to) / 2) {
  show(at - (at - view.from) * factor, at + (view.to - at) * factor);
}
function pan(share) {
  const by = (view.to - view.from) * share;
  show(view.from + by, view.to + by);
}
const actions = {in: () => zoom(0.5), out: () => zoom(2), left: () => pan(-0.3), right: () => pan(0.3), all: () => show(all.from, all.to)};
const atEvent = (event) => view.from + (event.clientX - chart.getBoundingClientRect().left) / width * (view.to - view.from);

document.querySelector(".tools").addEventListener("click", (event) => actions[event.target.dataset.do]?.());
chart.addEventListener("wheel", (event) => {
  if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 300), atEvent(event));
  else if (event.deltaX || event.shiftKey) pan((event.deltaX || event.deltaY) / width);
  else return;
  event.preventDefault();
}, {passive: false});
chart.addEventListener("dblclick", (event) => zoom(0.4, atEvent(event)));
let drag = null;
chart.addEventListener("pointerdown", (event) => {
  if (event.button === 0) drag = {x: event.clientX, from: view.from, to: view.to, moved: false};
});
addEventListener("pointermove", (event) => {
  if (!drag) return;
  if (Math.abs(event.clientX - drag.x) > 3) drag.moved = true;
  if (!drag.moved) return;
  chart.classList.add("drags");
  const by = (drag.x - event.clientX) / width * (drag.to - drag.from);
  show(drag.from + by, drag.to + by);
});
addEventListener("pointerup", (event) => {
  const wasClick = drag && !drag.moved;
  drag = null;
  chart.classList.remove("drags");
  if (wasClick && event.target.dataset?.n) select(Number(event.target.dataset.n), true);
});
chart.addEventListener("keydown", (event) => {
  const keys = {"+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", Home: "all"};
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in keys) actions[keys[event.key]]();
  else if (event.key === "n" || event.key === "p") step(event.key === "n" ? 1 : -1);
  else if (event.key === "Enter" && selected >= 0) select(selected, true);
  else if (event.key === "Escape") hideTip();
  else return;
  event.preventDefault();
});

// ---- incidents ----

function step(by) {
  const seen = incidents.filter((each) => each.shown).sort((a, b) => a.begin - b.begin);
  if (!seen.length) return;
  const now = seen.findIndex((each) => each.n === selected);
  const next = seen[now < 0 ? (by > 0 ? 0 : seen.length - 1) : Math.max(0, Math.min(seen.length - 1, now + by))];
  select(next.n, false);
  const place = chart.getBoundingClientRect();
  showTip(incidentText(next), place.left + 20, place.top + 60);
  byId("said").textContent = incidentText(next);
}
function select(n, goes) {
  selected = n;
  articles.forEach((article, k) => article.classList.toggle("on", k === n));
  const each = incidents[n];
  if (each.end < view.from || each.begin > view.to || !goes) {
    const begin = Math.min(each.begin, ...each.lanes.flatMap((lane) => lanes[lane].silences
      .filter(([, to]) => to >= each.begin && to <= each.end).map(([from]) => from)));
    const size = Math.max(each.end - begin, 2000);
    show(begin - size / 4, begin + size * 1.25);
  } else redraw();
  if (goes) each.article.focus();
}
articles.forEach((article, n) => article.querySelector(".show").addEventListener("click", () => {
  select(n, false);
  chart.focus();
  chart.scrollIntoView({block: "nearest"});
}));

// A link to an incident that is filtered away shows all.
document.addEventListener("click", (event) => {
  const n = articles.findIndex((article) => event.target.hash === "#" + article.id);
  if (n < 0) return;
  event.preventDefault();
  if (!incidents[n].shown) { form.reset(); filter(); }
  select(n, true);
});

// ---- hover ----

function incidentText(each) {
  const of = (selector) => each.article.querySelector(selector).textContent;
  return `${each.kind} (${each.grade})\n${of("h3")}\n${stamp(each.begin)}\n${of(".cost")}`;
}
function laneText(lane, at) {
  const held = lane.stretches.find((each) => each[0] <= at && at <= each[1]);
  const silent = lane.silences.some((each) => each[0] <= at && at <= each[1]);
  const band = data.bands.find((each) => each[0] <= at && at < each[1]);
  const has = !held ? words.none : lane.says ? lane.says : held[2] === null ? `${words.unit}s not known` : `${held[2]} ${words.unit}${held[2] === 1 ? "" : "s"}`;
  return `${lane.name}\n${lane.where}\n${stamp(at)}: ${silent ? words.silent : has}${band ? `, generation ${band[2]}` : ""}`;
}
function showTip(text, left, top) {
  tip.textContent = text;
  tip.hidden = false;
  tip.style.left = Math.max(4, Math.min(left + 12, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(4, Math.min(top + 14, innerHeight - tip.offsetHeight - 8)) + "px";
}
function hideTip() { tip.hidden = true; }
chart.addEventListener("pointermove", (event) => {
  if (drag?.moved) return hideTip();
  if (event.target.dataset?.n) return showTip(incidentText(incidents[event.target.dataset.n]), event.clientX, event.clientY);
  const lane = laneOf[Math.floor((event.clientY - body.getBoundingClientRect().top) / LANE)];
  if (!lane || head.contains(event.target)) return hideTip();
  showTip(laneText(lane, atEvent(event)), event.clientX, event.clientY);
});
chart.addEventListener("pointerleave", hideTip);
chart.addEventListener("blur", hideTip);

// ---- filters ----

const form = byId("filters");
function filter() {
  const wanted = new Set([...form.querySelectorAll("[name=kind]:checked")].map((each) => each.value));
  const asked = byId("process").value.trim().toLowerCase();
  lanes.forEach((lane) => {
    lane.shown = lane.text.includes(asked);
    rows[lane.n].hidden = !lane.shown;
  });
  incidents.forEach((each) => {
    each.shown = wanted.has(each.article.dataset.kind) && (!asked || each.lanes.some((lane) => lanes[lane].shown));
    each.article.hidden = !each.shown;
  });
  const count = (list) => list.filter((each) => each.shown).length;
  byId("filtered").textContent = `${count(incidents)} of ${incidents.length} incidents, ${count(lanes)} of ${lanes.length} processes`;
  if (selected >= 0 && !incidents[selected].shown) selected = -1;
  redraw();
}
form.addEventListener("input", filter);
byId("none").addEventListener("click", () => {
  for (const each of form.querySelectorAll("[name=kind]")) each.checked = false;
  filter();
});
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(() => { changeZone(); filter(); }));
function changeZone() {
  const numbers = {year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric"};
  zone = byId("zone").value;
  clocks = zone === "UTC" || zone === "local" ? null : new Intl.DateTimeFormat("en-US", {...numbers, timeZone: zone, hourCycle: "h23"});
  tellTimes();
  redraw();
}
byId("zone").addEventListener("change", changeZone);

// ---- begin ----

// On paper are the whole time, the lanes of the incidents that are printed, and what happened, if all of that is short.
let closed = [], unprinted = [], seen = null;
addEventListener("beforeprint", () => {
  seen = view;
  const most = data.lanes_on_paper ?? lanes.length, printed = articles.filter((each) => !each.classList.contains("off-paper"));
  const first = new Set(incidents.filter((each) => printed.includes(each.article)).flatMap((each) => each.lanes));
  const ranked = lanes.filter((each) => each.shown).sort((a, b) => first.has(b.n) - first.has(a.n) || a.n - b.n);
  unprinted = ranked.slice(most);
  for (const each of unprinted) each.shown = false;
  view = {...all}; width = 1000; draw();
  const sentences = printed.reduce((sum, each) => sum + each.querySelectorAll("details li").length, 0);
  closed = sentences > SENTENCES_ON_PAPER ? [] : [...document.querySelectorAll("details:not([open])")];
  for (const each of closed) each.open = true;
});
addEventListener("afterprint", () => {
  for (const each of closed) each.open = false;
  for (const each of unprinted) each.shown = true;
  view = seen; width = 0; measure();
});
new ResizeObserver(measure).observe(chart);
changeZone();
measure();
filter();
const linked = articles.findIndex((article) => location.hash === "#" + article.id);
if (linked >= 0) select(linked, true);
else if (data.opens_on !== null && data.opens_on !== undefined) select(data.opens_on, false);
})();
