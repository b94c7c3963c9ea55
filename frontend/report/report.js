"use strict";
// The script of a report page. It reads the JSON of the report (docs/report.md), and shows it
// in views that a URL fragment names. All text enters the page as text nodes.

const ROW = 20; // Height of a line of a text list, in pixels.
const GRID = 390; // Width of the picture of the devices, in pixels.
const LONG_PATH = 12; // Paths with more steps are shown without their middle.
const TABS = [["stages", "Stages"], ["communication", "Communication"],
  ["findings", "Conflicts and coverage"], ["schedule", "Schedule and memory"], ["source", "Source"]];
const KEYS = [["1 ... 6, arrows", "show a view"], ["j k", "next and previous line or row"],
  ["[ ]", "previous and next stage"], ["/", "search in the stage"], ["n N", "next and previous match"],
  ["Enter", "select the value of the line, or open the row"], ["d", "show or hide the difference"],
  ["f", "fold or unfold repeated lines"], ["+ - arrows", "zoom and move the schedule"],
  ["Esc", "close the selected value"], ["?", "show these keys"]];
const COLLECTIVE = /^(all-reduce|all-gather|all-to-all|all-slice|reduce-scatter|collective-permute|reshard|ragged-)/;
// Names in programs; names with other characters are written as strings.
const STRING = String.raw`"(?:[^"\\]|\\.)*"`, WORD = String.raw`[\p{L}\p{N}_.]+`;
const VALUE = `%(?:${WORD}|${STRING})`, AXIS = `(?:[A-Za-z_][\\p{L}\\p{N}_-]*|${STRING})`;
const NAME = new RegExp(VALUE, "gu"), FIRST_NAME = new RegExp(`^${VALUE}`, "u");
const NAMES = new RegExp(`^\\s*(${VALUE}(?:, ${VALUE})*)(?: =|:)`, "u");
const OPERATION = new RegExp(`^(\\s*(?:${VALUE}(?:, )?)+ = )([\\w-]+)`, "u");
const FUNCTION = new RegExp(`^(?:spmd )?func @(?:(${WORD})|(${STRING}))\\(`, "u");
const SHARDING = new RegExp(`\\d+@(?:-|\\?|\\([^)]*\\)|${AXIS}(?::\\(\\d+\\)\\d+)?)\\??|(?:replicated|unreduced)(?:\\[\\w+\\])?\\([^)]*\\)`, "gu");
const SUB_AXIS = new RegExp(`(${AXIS})(?::\\((\\d+)\\)(\\d+))?`, "gu");
const SHARDING_AXIS = new RegExp(`[@(]\\(?(${AXIS})`, "u");

let R; // The report.
let state = {};
let index; // Lookup tables over the report.
let renderedView = "";
let moveCursor = () => {}; // Moves the line or row that the keyboard has chosen.
let openCursor = () => {};

// Elements

function h(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
    else if (key in e && key !== "list") e[key] = value;
    else e.setAttribute(key, value);
  }
  e.append(...children.flat(9).filter((c) => c !== null && c !== undefined && c !== false && c !== ""));
  return e;
}
const $ = (id) => document.getElementById(id);
const plural = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
const num = (text) => h("span", {className: "num"}, String(text));
const link = (text, onclick, title) => h("button", {className: "link", type: "button", onclick, title}, text);

// Numbers, formatted as in the text output

function decimal(x) { // One digit, halves to even.
  const t = x * 10, low = Math.floor(t);
  const r = t - low === 0.5 ? (low % 2 ? low + 1 : low) : Math.round(t);
  return (r / 10).toFixed(1);
}
function scaled(n, base, units, last) {
  n /= base;
  for (const unit of units) {
    if (n < base) return `${decimal(n)} ${unit}`;
    n /= base;
  }
  return `${decimal(n)} ${last}`;
}
const bytes = (n) => (n < 1024 ? `${n} B` : scaled(n, 1024, ["KiB", "MiB", "GiB", "TiB"], "PiB"));
const flops = (n) => (n < 1000 ? `${n}` : scaled(n, 1000, ["K", "M", "G", "T"], "P"));
const time = (n) => (n < 1000 ? `${n} ns` : scaled(n, 1000, ["us", "ms"], "s"));

// Lookup tables

function makeIndex() {
  const axes = new Map();
  for (const mesh of R.meshes) for (const [name] of mesh.axes) if (!axes.has(name)) axes.set(name, axes.size % 8);
  const key = (row) => `${row.function} ${row.name}`;
  return {
    axes,
    values: new Map(R.values.map((v) => [key(v), v])),
    definitions: new Map(R.definitions.map((d) => [key(d), d])),
    collectives: new Map(R.collectives.map((c) => [c.value, c])),
    stages: new Map(),
  };
}

// The values that a line defines: results, or parameters of a function or of a block.
const definedNames = (line, d = NAMES.exec(line)) => (d?.[1] ?? /^\s*\((%.*)\) =>$/.exec(line)?.[1] ?? "").match(NAME) ?? [];

// The lines of a stage: `keys` identify the same line in other stages, `at` finds definitions.
function stageIndex(number) {
  let found = index.stages.get(number);
  if (found) return found;
  const keys = [], functions = [], at = new Map(), counts = new Map();
  let current = "";
  R.stages[number].lines.forEach((id, i) => {
    const text = R.texts[id];
    const f = FUNCTION.exec(text);
    if (f) current = f[1] ?? JSON.parse(f[2]);
    const d = NAMES.exec(text);
    const base = `${current}\n${d ? d[1] : text}`;
    const count = counts.get(base) ?? 0;
    counts.set(base, count + 1);
    keys.push(`${base}\n${count}`);
    functions.push(current);
    for (const name of definedNames(text, d)) if (!at.has(`${current} ${name}`)) at.set(`${current} ${name}`, i);
  });
  found = {keys, functions, at};
  index.stages.set(number, found);
  return found;
}

// Return the value that a name stands for: passes add suffixes to names.
function knownValue(fn, name) {
  let base = name;
  while (base) {
    const found = index.values.get(`${fn} ${base}`);
    if (found) return found;
    base = base.includes(".") ? base.slice(0, base.lastIndexOf(".")) : "";
  }
  return null;
}

// Texts with links and chips

const axisName = (text) => (text?.[0] === '"' ? JSON.parse(text) : text);
function typeSpans(text) {
  const parts = [];
  let last = 0;
  for (const m of text.matchAll(SHARDING)) {
    parts.push(text.slice(last, m.index));
    const axis = axisName(SHARDING_AXIS.exec(m[0])?.[1]);
    const color = index.axes.has(axis) ? `chip a${index.axes.get(axis)}` : "open";
    parts.push(h("span", {className: color}, m[0]));
    last = m.index + m[0].length;
  }
  parts.push(text.slice(last));
  return parts;
}

// Spans of a line of the program: names select values, shardings are chips.
function lineSpans(text, fn) {
  const parts = [];
  const d = OPERATION.exec(text) ?? /^(\s*)([\w-]+)(?=\()/.exec(text);
  const plain = (piece) => {
    let last = 0;
    for (const m of piece.matchAll(NAME)) {
      parts.push(...typeSpans(piece.slice(last, m.index)), valueSpan(fn, m[0]));
      last = m.index + m[0].length;
    }
    parts.push(...typeSpans(piece.slice(last)));
  };
  if (d) {
    plain(d[1]);
    parts.push(h("span", {className: COLLECTIVE.test(d[2]) ? "coll" : "op"}, d[2]));
    plain(text.slice(d[0].length));
  } else plain(text);
  return parts;
}

function valueSpan(fn, name) {
  const chosen = state.value === name && state.fn === fn;
  return h("span", {className: chosen ? "v sel" : "v", onclick: (e) => { e.stopPropagation(); selectValue(fn, name); }}, name);
}

function nameLinks(text, fn = R.name) { // A text in which names are links.
  const parts = [];
  let last = 0;
  for (const m of text.matchAll(NAME)) {
    parts.push(text.slice(last, m.index), link(m[0], () => selectValue(fn, m[0])));
    last = m.index + m[0].length;
  }
  parts.push(text.slice(last));
  return h("span", {className: "mono"}, parts);
}

const locationText = (loc) => (loc ? `${R.files[loc[0]].name}:${loc[1]}` : "");
const lineLink = (loc) => (loc ? link(locationText(loc), (e) => { e.stopPropagation(); go({view: "source", file: loc[0], line: loc[1]}); }, "show this line of the source") : "");

function annotation(number) {
  const a = R.annotations[number];
  const subject = a.subject === "result" ? `result ${a.name}` : a.subject;
  return h("span", {className: "mono"}, `${subject} `,
    a.subject === "result" ? "" : link(a.name, () => selectValue(a.function, a.name)), ": ", typeSpans(a.type), " ", lineLink(a.location));
}

// State in the URL fragment

function go(change) {
  const next = {...state, ...change};
  for (const key of Object.keys(next)) if (next[key] === null || next[key] === undefined || next[key] === false) delete next[key];
  const hash = "#" + new URLSearchParams(next);
  if (hash === location.hash) render();
  else location.hash = hash;
}
function readState() {
  // The last stage with shardings comes first: the stages of a backend merge all devices.
  const resharded = R.stages.findLastIndex((s) => s.name === "reshard");
  const first = resharded < 0 ? R.stages.findLastIndex((s) => s.operations) : resharded;
  const read = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  for (const key of ["stage", "base", "file", "line", "row"]) if (key in read) read[key] = Number(read[key]);
  state = {view: "stages", ...read};
  if (!(state.stage in R.stages)) state.stage = Math.max(0, first);
  if (!TABS.some(([id]) => id === state.view)) state.view = "stages";
}
function selectValue(fn, name, more) { go({fn, value: name, ...more}); }

// Page

function render() { keepFocus(renderState); }
function renderState() {
  readState();
  renderTabs();
  const identity = JSON.stringify([state.view, state.stage, state.base, state.diff, state.only, state.all]);
  const views = {stages: renderStages, communication: renderCommunication, findings: renderFindings,
    schedule: renderSchedule, source: renderSource, plan: renderPlanning};
  const same = identity === renderedView;
  renderedView = identity;
  hideTip();
  views[state.view]($("view"), same);
  renderInspector();
}

function renderTabs() {
  $("tabs").replaceChildren(...TABS.map(([id, label]) => h("button", {
    type: "button", role: "tab", id: `tab-${id}`, "aria-selected": String(id === state.view), "aria-controls": "view",
    tabIndex: id === state.view ? 0 : -1, onclick: () => go({view: id}),
  }, label)));
  $("view").setAttribute("aria-labelledby", `tab-${state.view}`);
}
function moveTab(e) { // Arrows move between tabs, as in all tab lists.
  const at = TABS.findIndex(([id]) => id === state.view);
  const to = {ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: TABS.length - 1}[e.key];
  if (to === undefined) return;
  e.preventDefault();
  const [id] = TABS[(to + TABS.length) % TABS.length];
  go({view: id});
  addEventListener("hashchange", () => $(`tab-${id}`).focus(), {once: true});
}

// Draw, and return the focus to the element that replaces the one that had it.
function keepFocus(draw) {
  const had = document.activeElement, box = had?.closest("#tabs, #view, #inspector");
  const key = (e) => e.getAttribute("aria-label") ?? e.textContent;
  draw();
  if (!box || had.isConnected) return;
  const same = [...box.querySelectorAll(had.tagName)].find((e) => key(e) === key(had));
  (same ?? $("view")).focus({preventScroll: true});
}

function renderFacts() {
  const s = R.schedule;
  const facts = [
    ...R.meshes.map((m) => [h("b", {}, `@${m.name}`), " ", m.axes.map(([n, size]) => [h("span", {className: `chip a${index.axes.get(n)}`}, `${n}=${size}`), " "]), "on ", num(plural(m.devices, "device"))]),
    R.tensors ? [h("b", {className: "num"}, `${R.sharded} of ${plural(R.tensors, "tensor")}`), " sharded"] : null,
    [h("b", {className: "num"}, plural(R.total.count, "collective")), ", ", h("b", {className: "num"}, bytes(R.total.sent)), " sent by each device"],
    [h("b", {className: "num"}, flops(R.flops)), " flops"],
    ["peak ", h("b", {className: "num"}, bytes(s.peak))],
    [h("b", {className: "num"}, plural(R.conflicts.length, "conflict"))],
  ];
  $("title").textContent = `@${R.name}`;
  $("facts").replaceChildren(...facts.filter(Boolean).map((f) => h("span", {}, f)), ...R.notes.map((n) => h("span", {role: "note"}, n)));
}

// Virtual list: only visible rows are in the page.

function virtualList(label, rows, make) {
  const list = h("div", {className: "list", tabIndex: 0, role: "list", "aria-label": label});
  const space = h("div", {className: "space"});
  list.append(space);
  let shown = [-1, -1];
  const draw = (force) => {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 15);
    const last = Math.min(rows.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 15);
    if (force || first !== shown[0] || last !== shown[1]) drawRows(first, last);
  };
  const drawRows = (first, last) => {
    shown = [first, last];
    const made = [];
    for (let i = first; i < last; i++) {
      const row = make(rows[i], i);
      row.style.top = `${i * ROW}px`;
      row.setAttribute("role", "listitem");
      made.push(row);
    }
    space.replaceChildren(...made);
  };
  const setRows = (next, widest) => {
    rows = next;
    space.style.height = `${rows.length * ROW}px`;
    if (widest) space.style.width = `calc(${widest + 4}ch + 90px)`;
    draw(true);
  };
  const show = (i) => {
    const top = i * ROW;
    if (top < list.scrollTop + ROW || top > list.scrollTop + list.clientHeight - 3 * ROW) list.scrollTop = Math.max(0, top - list.clientHeight / 3);
    draw(true);
  };
  list.addEventListener("scroll", () => draw(false), {passive: true});
  new ResizeObserver(() => draw(false)).observe(list);
  return {list, draw: () => draw(true), drawAll: () => drawRows(0, rows.length), setRows, show, rows: () => rows};
}

// Stages

let text; // The text list of the stages view, with its state.

function renderStages(view, same) {
  const number = state.stage;
  if (!same || !text) {
    const list = virtualList("Program", [], makeLine);
    const search = h("input", {type: "search", placeholder: "search   /", "aria-label": "Search in the stage", id: "search"});
    search.addEventListener("input", () => searchFor(search.value));
    search.addEventListener("keydown", (e) => {
      if (e.key === "Enter") { e.preventDefault(); nextMatch(e.shiftKey ? -1 : 1); }
      if (e.key === "Escape") { search.value = ""; searchFor(""); text.list.list.focus(); e.stopPropagation(); }
    });
    const count = h("span", {className: "faint num", "aria-live": "polite"});
    const unfolded = text && text.number === number ? text.unfolded : new Set();
    const scroll = text && text.number !== number && text.anchor();
    const cursor = text && text.number === number ? text.cursorLine : -1;
    text = {number, list, search, count, unfolded, cursor: -1, cursorLine: cursor, matches: [], match: -1, query: "", anchor: () => null};
    view.replaceChildren(h("div", {className: "stages"}, stageList(), h("div", {className: "textpane"}, stageToolbar(search, count), list.list)));
    text.anchor = () => {
      const row = text.list.rows()[Math.floor(text.list.list.scrollTop / ROW)];
      return row && row.line >= 0 ? stageIndex(text.number).keys[row.line] : null;
    };
    rebuildRows();
    if (scroll) { // Stay at the same line of the program in another stage.
      const line = stageIndex(number).keys.indexOf(scroll);
      if (line >= 0) list.list.scrollTop = rowOfLine(line) * ROW;
    }
  } else {
    view.querySelectorAll(".stagelist button").forEach((b, i) => b.setAttribute("aria-current", String(i === number)));
  }
  if (state.value) {
    const line = stageIndex(number).at.get(`${state.fn} ${state.value}`);
    if (line !== undefined && text.shown !== `${number} ${state.value}`) showLine(line);
    text.shown = `${number} ${state.value}`;
  }
  text.list.draw();
  moveCursor = (by) => setCursor(Math.min(Math.max(text.cursor + by, 0), text.list.rows().length - 1));
  openCursor = () => openRow(text.list.rows()[text.cursor]);
}

function stageList() {
  const items = R.stages.map((stage, i) => {
    const changes = stage.added + stage.removed + stage.changed;
    const counts = i === 0 || !stage.operations ? "" : changes === 0 ? h("span", {className: "faint"}, "no change") :
      h("span", {className: "num"}, stage.added ? [h("span", {className: "plus"}, `+${stage.added}`), " "] : "",
        stage.removed ? [h("span", {className: "minus"}, `-${stage.removed}`), " "] : "", stage.changed ? `~${stage.changed}` : "");
    return h("li", {}, h("button", {
      type: "button", className: i && stage.operations && !changes ? "same" : "", title: stage.step || stage.name,
      "aria-current": String(i === state.stage), onclick: () => go({stage: i, base: null}),
    }, h("span", {}, stage.name), counts, h("small", {}, num(stage.operations ? plural(stage.operations, "operation") : plural(stage.lines.length, "line")))));
  });
  return h("ul", {className: "stagelist", "aria-label": "Stages"}, items);
}

function stageToolbar(search, count) {
  const stage = R.stages[state.stage];
  const toggle = (key, label, title) => h("button", {type: "button", className: state[key] ? "on" : "", "aria-pressed": String(!!state[key]), title,
    onclick: () => go({[key]: state[key] ? null : "1"})}, label);
  const base = baseStage();
  const choice = h("select", {"aria-label": "Compare with", onchange: (e) => go({base: Number(e.target.value), diff: "1"})},
    R.stages.map((s, i) => (i === state.stage ? null : h("option", {value: String(i), selected: i === base}, s.name))));
  return h("div", {className: "toolbar"}, h("b", {}, stage.step || stage.name), search, count, h("span", {style: "flex:1"}),
    stage.folds.length ? toggle("all", state.all ? "fold repeated layers" : "unfold repeated layers", "f") : "",
    R.stages.length > 1 ? [toggle("diff", "difference to", "d"), choice] : "",
    state.diff ? toggle("only", "changes only", "hide equal lines") : "");
}

const baseStage = () => (state.base in R.stages && state.base !== state.stage ? state.base : Math.max(0, state.stage - 1));

// The rows of the list: lines, folded groups, and with `diff` the lines of another stage.
function rebuildRows() {
  const stage = R.stages[state.stage];
  const rows = [];
  let widest = 0;
  const push = (line, kind, from) => {
    const id = R.stages[from ?? state.stage].lines[line];
    widest = Math.max(widest, R.texts[id].length);
    rows.push({line: from === undefined ? line : -1, number: line + 1, text: R.texts[id], kind, stage: from ?? state.stage, at: line});
  };
  const base = baseStage();
  if (state.diff && base !== state.stage) {
    const old = stageIndex(base), now = stageIndex(state.stage);
    const oldAt = new Map(old.keys.map((k, i) => [k, i])), nowKeys = new Set(now.keys);
    const oldText = R.stages[base].lines;
    const removedAfter = new Map(); // Removed lines, by the last line before them that remains.
    let anchor = "";
    old.keys.forEach((k, i) => {
      if (nowKeys.has(k)) anchor = k;
      else removedAfter.set(anchor, [...(removedAfter.get(anchor) ?? []), i]);
    });
    const all = [];
    (removedAfter.get("") ?? []).forEach((i) => all.push([i, "del"]));
    now.keys.forEach((k, i) => {
      const before = oldAt.get(k);
      if (before === undefined) all.push([i, "add"]);
      else if (oldText[before] === stage.lines[i]) all.push([i, ""]);
      else all.push([before, "del"], [i, "add"]);
      (removedAfter.get(k) ?? []).forEach((j) => all.push([j, "del"]));
    });
    const near = new Uint8Array(all.length);
    if (state.only) all.forEach(([, kind], i) => { if (kind) near.fill(1, Math.max(0, i - 3), i + 4); });
    let hidden = 0;
    const flush = () => { if (hidden) rows.push({line: -1, kind: "gap", count: hidden}); hidden = 0; };
    all.forEach(([i, kind], k) => {
      if (state.only && !near[k]) { hidden++; return; }
      flush();
      push(i, kind, kind === "del" ? base : undefined);
    });
    flush();
  } else {
    let i = 0;
    for (const fold of [...stage.folds, null]) {
      const until = fold ? fold.start : stage.lines.length;
      for (; i < until; i++) push(i, "");
      if (!fold) break;
      const open = state.all ? !text.unfolded.has(fold.start) : text.unfolded.has(fold.start);
      if (open) {
        rows.push({line: -1, kind: "fold", fold, open: true});
        for (; i < fold.start + fold.length; i++) push(i, "");
      } else {
        for (; i < fold.start + fold.unit; i++) push(i, "");
        rows.push({line: -1, kind: "fold", fold, open: false});
        for (const [start, length] of fold.exceptions) {
          rows.push({line: -1, kind: "note", text: `one that differs, ${plural(length, "line")} from line ${start + 1}:`});
          for (i = start; i < start + length; i++) push(i, "");
        }
        i = fold.start + fold.length;
      }
    }
  }
  text.list.setRows(rows, widest);
  text.cursor = -1;
}

function makeLine(row, i) {
  const cursor = i === text.cursor ? " cursor" : "";
  if (row.kind === "gap") return h("div", {className: "row fold"}, h("span", {className: "ln"}), `... ${plural(row.count, "equal line")}`);
  if (row.kind === "note") return h("div", {className: "row fold"}, h("span", {className: "ln"}), row.text);
  if (row.kind === "fold") {
    const f = row.fold, but = f.exceptions.length ? `, except ${f.exceptions.length}` : "";
    const label = row.open ? `fold: ${f.unit} lines x ${f.count}${but}` : `... these ${f.unit} lines x ${f.count} (layers that differ only in names${but}); show all`;
    return h("div", {className: "row fold" + cursor, onclick: () => toggleFold(row)}, h("span", {className: "ln"}, row.open ? "-" : "+"), h("span", {className: "num"}, label));
  }
  const fn = stageIndex(row.stage).functions[row.at];
  const names = definedNames(row.text);
  const selected = state.value && state.fn === fn && names.includes(state.value);
  const found = text.query && row.text.includes(text.query);
  const mark = state.diff ? h("span", {className: "mark"}, row.kind === "add" ? "+" : row.kind === "del" ? "-" : " ") : "";
  const why = names.length && R.stages[row.stage].operations ? index.definitions.get(`${fn} ${names[0]}`)?.why : "";
  return h("div", {className: `row ${row.kind}${selected ? " selected" : ""}${cursor}${found ? " found" : ""}`, title: why || undefined,
    onclick: () => { setCursor(i); if (names.length) selectValue(fn, names[0]); }},
  h("span", {className: "ln"}, String(row.number)), mark, lineSpans(row.text, fn));
}

function toggleFold(row) {
  const key = row.fold.start;
  if (text.unfolded.has(key)) text.unfolded.delete(key); else text.unfolded.add(key);
  const top = text.list.list.scrollTop;
  rebuildRows();
  text.list.list.scrollTop = top;
}
function rowOfLine(line) { return text.list.rows().findIndex((r) => r.line === line); }
function showLine(line) {
  let row = rowOfLine(line);
  if (row < 0) {
    const fold = R.stages[state.stage].folds.find((f) => f.start <= line && line < f.start + f.length);
    if (fold && !state.diff) { toggleFold({fold}); row = rowOfLine(line); }
  }
  if (row < 0) return;
  text.cursor = row;
  text.list.show(row);
}
function setCursor(row) { text.cursor = row; text.list.show(row); }
function openRow(row) {
  if (!row) return;
  if (row.kind === "fold") return toggleFold(row);
  const [name] = definedNames(row.text ?? "");
  if (name) selectValue(stageIndex(row.stage).functions[row.at], name);
}
function searchFor(query) {
  text.query = query;
  const lines = R.stages[state.stage].lines;
  text.matches = [];
  if (query) lines.forEach((id, i) => { if (R.texts[id].includes(query)) text.matches.push(i); });
  text.match = -1;
  text.count.textContent = query ? plural(text.matches.length, "match").replace("matchs", "matches") : "";
  text.list.draw();
  if (query.length > 1 && text.matches.length) nextMatch(1);
}
function nextMatch(by) {
  const n = text.matches.length;
  if (!n) return;
  text.match = (text.match + by + n) % n;
  text.count.textContent = `${text.match + 1} of ${n}`;
  showLine(text.matches[text.match]);
}

// A value

function renderInspector() {
  const box = $("inspector");
  if (!state.value) { box.hidden = true; box.replaceChildren(); return; }
  box.hidden = false;
  const {fn, value: name} = state;
  const value = index.values.get(`${fn} ${name}`);
  const made = index.definitions.get(`${fn} ${name}`);
  const base = value ?? knownValue(fn, name);
  const collective = index.collectives.get(name);
  const at = value?.location ?? made?.location ?? base?.location;
  const parts = [
    h("button", {type: "button", className: "close", onclick: () => go({value: null, fn: null}), "aria-label": "Close", title: "Esc"}, "x"),
    h("h2", {className: "mono"}, name),
    h("p", {}, lineLink(at), " ", state.view === "stages" ? "" : link("show in the stage", () => go({view: "stages"}))),
  ];
  if (made?.why) parts.push(h("p", {}, "made because of: ", nameLinks(made.why, fn)));
  if (collective) parts.push(h("p", {}, link("about this collective", () => go({view: "communication", row: R.collectives.indexOf(collective)}))));
  if (!value && base) parts.push(h("p", {}, "A pass made it for ", link(base.name, () => selectValue(fn, base.name)), "."));
  if (value) parts.push(...valueParts(value));
  parts.push(...throughStages(fn, name), ...usesOf(fn, name));
  box.replaceChildren(...parts);
  box.scrollTop = 0;
}

function valueParts(value) {
  const parts = [
    h("p", {className: "mono"}, typeSpans(value.type)),
    h("dl", {className: "dl"},
      h("dt", {}, "on a device"), h("dd", {}, num(bytes(value.nbytes))),
      h("dt", {}, "in total"), h("dd", {}, num(bytes(value.total_nbytes))),
      h("dt", {}, "shards"), h("dd", {}, num(value.shards.join(" x ") || "1")),
      h("dt", {}, "copies of each"), h("dd", {}, num(value.copies))),
    deviceGrid(value),
    h("h2", {}, "Why it is sharded"),
  ];
  const revisions = R.revisions.filter((r) => r.function === value.function && r.name === value.name);
  if (!value.origins.length && !revisions.length) parts.push(h("p", {className: "faint"}, "No axis shards it."));
  for (const [dim, origin] of value.origins) for (const path of paths(origin)) parts.push(pathView(dim, path));
  for (const r of revisions) {
    parts.push(h("h3", {}, `The pass ${r.by} changed it after propagation`),
      h("p", {className: "mono"}, typeSpans(r.before), " -> ", typeSpans(r.after)),
      r.why ? h("p", {className: "faint"}, nameLinks(r.why)) : "");
  }
  const byAxis = new Map();
  for (const n of value.absences) byAxis.set(R.absences[n].axis, [...(byAxis.get(R.absences[n].axis) ?? []), R.absences[n]]);
  if (byAxis.size) parts.push(h("h2", {}, "Why not otherwise"));
  for (const [axis, absences] of byAxis) {
    const here = value.origins.some(([, o]) => paths(o).some((p) => p.axis === axis));
    parts.push(h("h3", {}, here || !revisions.length ? [chip(axis), here ? " could also shard" : " does not shard it"] : ["propagation does not shard it over ", chip(axis)]));
    for (const a of absences) {
      parts.push(h("p", {}, a.dim < 0 ? "" : `dimension ${a.dim}: `, a.far ? "it stops earlier: " : "", a.reason,
        a.op ? [" - ", a.tensor ? [nameLinks(a.tensor), " at "] : "", nameLinks(a.op), " ", lineLink(a.location)] : ""));
      if (a.detail) parts.push(h("p", {className: "faint"}, nameLinks(a.detail)));
    }
  }
  return parts;
}

function chip(axis) {
  const color = index.axes.get(axisName(axis.split(":")[0]));
  return h("span", {className: color === undefined ? "mono" : `chip a${color} mono`}, axis);
}

// The paths of the parts of an axis, each from its annotation to the value.
function paths(origin) {
  const found = [], waiting = [[origin, []]];
  while (waiting.length) {
    const [number, trail] = waiting.pop();
    const node = R.origins[number];
    for (const part of node.stated) found.push({...part, links: trail});
    for (const [link, next] of node.hops) waiting.push([next, [R.links[link], ...trail]]);
  }
  return found.sort((a, b) => a.pre - b.pre);
}

function pathView(dim, path) {
  const rows = path.links.map((l) => h("li", {}, nameLinks(l.source), " -> ", nameLinks(l.target), " ",
    h("span", {className: "faint"}, `${l.way} through `), nameLinks(l.op), " ",
    h("span", {className: "faint"}, "along ", nameLinks(l.loop), `, round ${l.round}${l.priority ? ` of priority ${l.priority}` : ""} `), lineLink(l.location)));
  if (rows.length > LONG_PATH) {
    const hidden = rows.splice(5, rows.length - 10);
    const more = h("li", {}, link(`${hidden.length} more steps`, () => more.replaceWith(...hidden)));
    rows.splice(5, 0, more);
  }
  return h("div", {className: "chain"}, h("h3", {}, chip(path.axis), ` shards dimension ${dim}`),
    h("ol", {className: "path"}, h("li", {className: "from"}, "stated by ", annotation(path.annotation)), rows));
}

// A picture of the shards: the devices that hold each of them.
function deviceGrid(value) {
  const mesh = R.meshes.find((m) => value.type.endsWith(` on @${m.name}`)) ?? R.meshes[0];
  if (!mesh || !value.shards.length || mesh.devices > 65536) return "";
  const dims = value.shards.map((n, d) => [n, d]).filter(([n]) => n > 1).map(([, d]) => d);
  const inside = /\[(.*?)\](?= |$)/.exec(value.type)?.[1] ?? "";
  const texts = inside.split(/, (?![^(]*\))/);
  const axes = texts.map((t) => [...(/@(.*?)(?: p\d+)?$/.exec(t)?.[1] ?? "").matchAll(SUB_AXIS)].map(([, name, pre, size]) => [axisName(name), pre, size]));
  const [rowDim, columnDim] = dims.length > 1 ? dims : [-1, dims[0] ?? -1];
  const rows = rowDim < 0 ? 1 : value.shards[rowDim], columns = columnDim < 0 ? 1 : value.shards[columnDim];
  const sizes = Object.fromEntries(mesh.axes), strides = {};
  let stride = 1;
  for (const [name, size] of [...mesh.axes].reverse()) { strides[name] = stride; stride *= size; }
  const position = (device, dim) => {
    let at = 0;
    for (const [name, pre, part] of axes[dim] ?? []) {
      const full = sizes[name] ?? 1, size = part ? Number(part) : full, before = pre ? Number(pre) : 1;
      at = at * size + (Math.floor(Math.floor(device / (strides[name] ?? 1)) % full / (full / (before * size))) % size);
    }
    return at;
  };
  const holders = new Map();
  for (let device = 0; device < mesh.devices; device++) {
    const key = `${rowDim < 0 ? 0 : position(device, rowDim)},${columnDim < 0 ? 0 : position(device, columnDim)}`;
    if (!holders.has(key)) holders.set(key, []);
    holders.get(key).push(mesh.device_ids[device] ?? device);
  }
  for (const devices of holders.values()) devices.sort((a, b) => a - b);
  const longest = Math.max(...[...holders.values()].map((devices) => ranges(devices, 2).length));
  const shownRows = Math.min(rows, 8), shownColumns = Math.min(columns, 8, Math.max(1, Math.floor(GRID / (7 * longest + 8))));
  const cells = [];
  for (let i = 0; i < shownRows; i++) for (let j = 0; j < shownColumns; j++) {
    const devices = holders.get(`${i},${j}`) ?? [];
    const color = rowDim < 0 && columnDim < 0 ? null : index.axes.get(axes[columnDim]?.[0]?.[0]) ?? null;
    cells.push(h("div", {title: `devices ${ranges(devices, 40)}`, className: color === null ? "" : `a${color}${(i + j) % 2 ? " odd" : ""}`}, ranges(devices, 2)));
  }
  const grid = h("div", {className: "grid", role: "img", "aria-label": `shards ${value.shards.join(" x ")}`, style: `grid-template-columns:repeat(${shownColumns}, 1fr)`}, cells);
  const cut = rows > shownRows || columns > shownColumns ? `; the first ${shownRows} x ${shownColumns} of ${rows} x ${columns} shards` : "";
  const what = dims.length === 0 ? "every device holds all of it" : dims.length === 1 ? `dimension ${columnDim} from left to right` : `dimension ${rowDim} from top to bottom, dimension ${columnDim} from left to right`;
  return h("figure", {style: "margin:8px 0"}, grid, h("figcaption", {className: "faint"}, `Devices by shard: ${what}${cut}`));
}
function ranges(numbers, most) {
  const found = [];
  for (const n of numbers) {
    const last = found.at(-1);
    if (last && last[1] === n - 1) last[1] = n; else found.push([n, n]);
  }
  const texts = found.slice(0, most).map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`));
  return texts.join(",") + (found.length > most ? ",..." : "");
}

function definitionText(stage, line) {
  return R.texts[R.stages[stage].lines[line]].trim();
}
function throughStages(fn, name) {
  const rows = [];
  let last = null;
  R.stages.forEach((stage, i) => {
    if (!stage.operations) return;
    const line = stageIndex(i).at.get(`${fn} ${name}`);
    const now = line === undefined ? null : definitionText(i, line);
    const changed = now !== last;
    if (now !== null || last !== null) {
      rows.push(h("tr", {className: i === state.stage && state.view === "stages" ? "chosen" : ""},
        h("td", {}, link(stage.name, () => go({view: "stages", stage: i, base: null}))),
        h("td", {className: "mono"}, now === null ? h("span", {className: "faint"}, changed ? "removed" : "") : changed ? typeSpans(resultText(now)) : h("span", {className: "faint"}, "as before"))));
    }
    last = now;
  });
  return rows.length ? [h("h2", {}, "Through the stages"), h("table", {}, h("tbody", {}, rows))] : [];
}
function resultText(line) { // The operation and the type of a definition.
  const m = /^%.*? = ([\w-]+)\(.*\) : (.*?)(?: \{)?$/.exec(line);
  return m ? `${m[1]} : ${m[2]}` : line.replace(FIRST_NAME, "").replace(/^: /, "").replace(/,$/, "");
}
function usesOf(fn, name) {
  const own = stageIndex(state.stage), found = [];
  const escaped = new RegExp(name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&") + '(?![\\p{L}\\p{N}_."])', "u");
  R.stages[state.stage].lines.forEach((id, i) => {
    if (found.length <= 30 && own.functions[i] === fn && R.texts[id].includes(name) && own.at.get(`${fn} ${name}`) !== i && escaped.test(R.texts[id])) found.push(i);
  });
  if (!found.length) return [];
  const rows = found.slice(0, 30).map((i) => h("li", {className: "mono"}, link(`line ${i + 1}`, () => { go({view: "stages"}); showLine(i); }), " ", lineSpans(R.texts[R.stages[state.stage].lines[i]].trim(), fn)));
  return [h("h2", {}, `Uses after ${R.stages[state.stage].name}`), h("ul", {style: "padding-left:0;list-style:none;overflow-wrap:anywhere"}, rows, found.length > 30 ? h("li", {className: "faint"}, "and more") : "")];
}

// Tables with rows that the keyboard and the mouse choose

function table(heads, rows, options = {}) {
  const sort = options.sort;
  const body = h("tbody", {}, rows);
  return h("table", {className: options.className, "aria-label": options.label}, h("thead", {}, h("tr", {}, heads.map(([label, kind, key]) => label === "" ? h("td", {}) :
    h("th", {className: kind === "n" ? "n" : "", scope: "col", "aria-sort": sort && key === sort.key ? (sort.up ? "ascending" : "descending") : undefined},
      key && sort ? h("button", {type: "button", onclick: () => sort.by(key)}, label, key === sort.key ? (sort.up ? " ^" : " v") : "") : label)))), body);
}
function pickRows(rows, pick, at = -1) { // j and k move through `rows`, Enter calls `pick` with the chosen one.
  moveCursor = (by) => {
    at = Math.min(Math.max(at + by, 0), rows.length - 1);
    rows[at]?.focus();
    rows[at]?.scrollIntoView({block: "nearest"});
  };
  openCursor = () => { if (rows[at]) pick(at); };
}
const numbers = (...cells) => cells.map((c) => h("td", {className: "n"}, num(c)));

// Communication

let order = {key: "sent", up: false};

function totals(title, rows) {
  const most = Math.max(1, ...rows.map((r) => r.sent));
  return h("div", {}, table([[title], ["count", "n"], ["runs", "n"], ["result", "n"], ["sent", "n"], [""]], rows.map((r) =>
    h("tr", {}, h("td", {}, r.word || "(no line)"), numbers(r.count, r.executions, bytes(r.nbytes), bytes(r.sent)),
      h("td", {}, h("span", {className: "meter", style: `width:${Math.round(90 * r.sent / most)}px`}))))));
}

function renderCommunication(view, same) {
  if (!R.collectives.length) { view.replaceChildren(h("p", {className: "empty"}, "No communication.")); return; }
  const sum = (row) => row.sent * Math.abs(row.executions);
  const groups = new Map(); // Collectives that differ only in names: those of repeated layers.
  R.collectives.forEach((row, i) => {
    const key = JSON.stringify([row.kind, row.axes, row.nbytes, row.sent, row.executions, row.why.replace(NAME, "%"), row.location]);
    groups.set(key, [...(groups.get(key) ?? []), i]);
  });
  const shape = {sent: (g) => sum(R.collectives[g[0]]) * g.length, nbytes: (g) => R.collectives[g[0]].nbytes, kind: (g) => R.collectives[g[0]].kind,
    axes: (g) => R.collectives[g[0]].axes, line: (g) => locationText(R.collectives[g[0]].location), order: (g) => g[0]}[order.key];
  const sorted = [...groups.values()].sort((a, b) => {
    const x = shape(a), y = shape(b);
    return (x < y ? -1 : x > y ? 1 : a[0] - b[0]) * (order.up ? 1 : -1);
  });
  const chosen = state.row in R.collectives ? state.row : -1;
  const list = [];
  const picked = [];
  for (const group of sorted) {
    const open = group.length > 1 && group.includes(chosen);
    (open ? group : [group[0]]).forEach((i, k) => {
      const row = R.collectives[i];
      const times = row.executions === 1 ? "" : row.executions < 0 ? "in a while" : h("span", {className: "num"}, `${row.executions} runs`);
      picked.push(i);
      list.push(h("tr", {className: `pick${i === chosen ? " chosen" : ""}`, tabIndex: 0, onclick: () => go({row: i}),
        onkeydown: (e) => { if (e.key === "Enter") { e.preventDefault(); e.stopPropagation(); go({row: i}); } }},
      h("td", {className: "mono"}, k ? "   " : "", row.value, k === 0 && group.length > 1 ? h("span", {className: "times num", title: "collectives that differ only in names"}, `x ${group.length}`) : ""),
      h("td", {className: "keep"}, row.kind), h("td", {className: "keep"}, chip1(row.axes)), numbers(row.group_size, bytes(row.nbytes), bytes(row.sent)),
      h("td", {}, times), h("td", {}, lineLink(row.location)), h("td", {className: "mono"}, row.why)));
    });
  }
  const sort = {...order, by: (key) => { order = {key, up: key === order.key ? !order.up : key === "kind" || key === "axes" || key === "line" || key === "order"}; renderedView = ""; render(); }};
  const top = same ? view.querySelector(".page")?.scrollTop ?? 0 : 0;
  const page = h("div", {className: "page"},
    h("h2", {}, num(plural(R.total.count, "collective")), ", ", num(bytes(R.total.sent)), " sent by each device"),
    chosen >= 0 ? collectiveCard(chosen) : h("p", {className: "faint"}, "Choose a collective to see its cause and the more expensive alternatives.",
      groups.size < R.collectives.length ? " Sizes are those of one collective; the order by sent bytes adds up the collectives of a row." : ""),
    table([["value", "", "order"], ["kind", "", "kind"], ["over", "", "axes"], ["devices", "n"], ["result", "n", "nbytes"], ["sent", "n", "sent"], [""], ["line", "", "line"], ["why"]], list, {sort, label: "Collectives"}),
    h("div", {className: "sums"}, totals("by kind", R.by_kind), totals("over", R.by_axes), totals("by line", R.by_line)));
  view.replaceChildren(page);
  page.scrollTop = chosen >= 0 ? 0 : top;
  pickRows(list, (i) => go({row: picked[i]}), picked.indexOf(chosen));
}
const chip1 = (axes) => h("span", {}, axes.replace(/^\(|\)$/g, "").split(", ").map((a) => [chip(a), " "]));

const REQUESTED = "the program requests it"; // The reason of a collective that no pass created.

function collectiveCard(i) {
  const row = R.collectives[i];
  const plan = (p, word) => h("tr", {}, h("td", {className: "faint"}, word), h("td", {className: "mono"}, p.steps.join(", ") || "nothing"),
    h("td", {className: "n"}, num(bytes(p.nbytes)), " received"), h("td", {className: "mono"}, p.middle ? `via ${p.middle}` : ""));
  return h("div", {className: "card", id: "collective"},
    h("button", {type: "button", className: "close", onclick: () => go({row: null}), "aria-label": "Close"}, "x"),
    h("h2", {className: "mono"}, link(row.value, () => selectValue(R.name, row.value)), ` = ${row.kind} over ${row.axes} `, lineLink(row.location)),
    h("p", {}, row.why === REQUESTED ? row.why : ["because of: ", nameLinks(row.why)]),
    h("p", {}, num(row.group_size), " devices in each group, ", num(bytes(row.nbytes)), " result, ", num(bytes(row.sent)), " sent by each device"),
    row.move ? [h("h3", {}, "Part of the reshard of"), h("p", {className: "mono"}, typeSpans(row.move)),
      h("table", {}, h("tbody", {}, row.chosen ? plan(row.chosen, "chosen") : "", row.rejected.map((p) => plan(p, "more expensive"))))] : "",
    row.annotations.length ? [h("h3", {}, "Its axes come from"), row.annotations.map((a) => h("p", {}, annotation(a)))] : "",
    h("p", {}, link("show in the last stage", () => selectValue(R.name, row.value, {view: "stages", stage: R.stages.findLastIndex((s, n) => s.operations && stageIndex(n).at.has(`${R.name} ${row.value}`))}))));
}

// Conflicts and coverage

function renderFindings(view) {
  const folded = (rows, key, make) => { // Rows that differ only in names become one.
    const groups = new Map();
    rows.forEach((r) => { const k = key(r); groups.set(k, [...(groups.get(k) ?? []), r]); });
    return [...groups.values()].map((g) => make(g[0], g.length > 1 ? h("span", {className: "times num", title: g.map((r) => r.op ?? r.value ?? r.name).slice(0, 40).join("\n")}, `x ${g.length}`) : "", g));
  };
  const request = (word, r) => h("tr", {}, h("td", {className: "faint keep"}, word), h("td", {className: "mono keep"}, nameLinks(r.value), " ", chip1(r.axes)),
    h("td", {className: "keep"}, "along ", nameLinks(r.loop)), h("td", {}, r.annotations.map((a) => h("div", {}, annotation(a)))));
  const unnamed = (x) => JSON.stringify(x).replace(NAME, "%");
  const conflicts = folded(R.conflicts, (c) => unnamed([c.op, c.location, c.kept.axes, c.kept.loop, c.given_up.axes, c.given_up.loop, c.verdict, c.reshard, c.nbytes]), (c, times) => h("div", {className: "card"},
    h("h3", {style: "margin-top:0"}, nameLinks(c.op, c.function), " ", lineLink(c.location), times),
    h("table", {}, h("tbody", {}, request("kept", c.kept), request("given up", c.given_up))),
    h("p", {}, "because: ", c.verdict, c.detail ? [" - ", nameLinks(c.detail)] : ""),
    h("p", {}, h("span", {className: "mono"}, c.reshard.join(" + ") || "nothing"), ", ", num(bytes(c.nbytes)), " received by each device")));
  const unsharded = folded(R.unsharded, (u) => `${u.dim} ${u.size} ${u.axes} ${u.nbytes}`, (u, times) => h("tr", {},
    h("td", {}, nameLinks(u.value), times), numbers(u.dim, u.size), h("td", {}, u.axes.map((a, i) => [i ? " or " : "", chip(a)])), numbers(bytes(u.nbytes))));
  const SHOWN = 100;
  const more = h("p", {}, link(`show ${unsharded.length - SHOWN} more rows`, () => { body.append(...unsharded.slice(SHOWN)); more.remove(); }));
  const unshardedTable = table([["value"], ["dimension", "n"], ["size", "n"], ["could be sharded over"], ["on a device", "n"]], unsharded.slice(0, SHOWN), {label: "Unsharded dimensions"});
  const body = unshardedTable.querySelector("tbody");
  const idle = folded(R.idle.map((n) => ({n, name: R.annotations[n].name})), ({n}) => unnamed([R.annotations[n].subject, R.annotations[n].name.replace(/\d+/g, "0"), R.annotations[n].type]), ({n}, times) => h("p", {}, annotation(n), times));
  view.replaceChildren(h("div", {className: "page"},
    h("h2", {}, num(plural(R.conflicts.length, "conflict"))), conflicts,
    h("h2", {}, num(plural(R.unruled.length, "operation")), " without a factor rule"),
    R.unruled.map((u) => h("p", {}, nameLinks(u.op), ` stops ${u.axes.join(", ") || "nothing"} `, lineLink(u.location))),
    h("h2", {}, num(plural(R.dependences.length, "value")), " sharded differently in another order of propagation"),
    R.dependences.map((d) => h("div", {className: "card"}, nameLinks(d.value), h("p", {className: "mono"}, typeSpans(d.lifo), " or ", typeSpans(d.fifo)), d.annotations.map((a) => h("p", {}, annotation(a))))),
    h("h2", {}, num(plural(R.idle.length, "annotation")), " without effect"), idle,
    h("h2", {}, num(plural(R.unsharded.length, "dimension")), " unsharded although an axis is free"),
    R.unsharded.length ? unshardedTable : "", unsharded.length > SHOWN ? more : ""));
  pickRows([...view.querySelectorAll(".card, tbody tr")].map((e) => { e.tabIndex = 0; return e; }), () => {});
}

// Schedule and memory

const LEFT = 84; // Width of the labels of lanes, in pixels.
const TOP = 24; // Height of the labels of times, in pixels.
const MOVES = "wheel or + - zooms, drag or arrows move, 0 shows all, a click selects the value";
const visible = {}; // The visible part of each time axis, in nanoseconds.

const laneHeight = (lanes) => (lanes.length > 12 ? 20 : 34);
function timeCanvas(label, height) {
  return h("canvas", {tabIndex: 0, role: "img", "aria-label": label, style: `height:${height}px;margin-top:6px`});
}
const laneCanvas = (label, lanes) => timeCanvas(label, TOP + 6 + laneHeight(lanes) * lanes.length);

// Zoom and move canvases over a time axis; return a function that draws them. `at(t, lane)` is the
// index of a box, `describe` its tip, `choose` the value that a click selects.
function timeAxis({name, total, lanes, canvases, draw, at, describe, choose}) {
  const whole = Math.max(total, 1), range = visible[name] ??= [0, whole];
  const drawAll = () => canvases.forEach((canvas, i) => draw[i](prepare(canvas, range)));
  const move = (start, width) => {
    range[0] = Math.min(Math.max(start, 0), Math.max(0, whole - width));
    range[1] = range[0] + width;
    requestAnimationFrame(drawAll);
  };
  const zoom = (factor, share = 0.5) => {
    const width = Math.min(Math.max((range[1] - range[0]) * factor, 20), whole);
    move(range[0] + (range[1] - range[0] - width) * share, width);
  };
  canvases.forEach((canvas, i) => {
    const share = (e) => { const box = canvas.getBoundingClientRect(); return (e.clientX - box.left - LEFT) / (box.width - LEFT); };
    const found = (e) => at(range[0] + share(e) * (range[1] - range[0]), i ? -1 : Math.floor((e.offsetY - TOP) / laneHeight(lanes)));
    canvas.addEventListener("wheel", (e) => { e.preventDefault(); zoom(e.deltaY > 0 ? 1.25 : 0.8, Math.max(0, share(e))); }, {passive: false});
    canvas.addEventListener("mousemove", (e) => {
      const width = range[1] - range[0];
      if (e.buttons === 1) return move(range[0] - e.movementX / (canvas.clientWidth - LEFT) * width, width);
      const box = share(e) < 0 ? null : found(e);
      return box ? tip(e, describe(box)) : hideTip();
    });
    canvas.addEventListener("mouseleave", hideTip);
    canvas.addEventListener("click", (e) => {
      const value = share(e) < 0 ? "" : choose(found(e));
      if (value) selectValue(R.name, value);
    });
    canvas.addEventListener("keydown", (e) => {
      const width = range[1] - range[0];
      const act = {"+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1.4), ArrowLeft: () => move(range[0] - width / 6, width),
        ArrowRight: () => move(range[0] + width / 6, width), "0": () => move(0, whole)}[e.key];
      if (act) { e.preventDefault(); e.stopPropagation(); act(); }
    });
    new ResizeObserver(drawAll).observe(canvas);
  });
  return drawAll;
}

function renderSchedule(view) {
  const s = R.schedule;
  const lanes = laneCanvas("Lanes of the estimated schedule; the view Stages lists the operations", s.lanes);
  const curve = timeCanvas("Memory over the schedule; the peak is described below", 170);
  const drawAll = timeAxis({
    name: "schedule", total: s.total, lanes: s.lanes, canvases: [lanes, curve], draw: [drawSchedule, drawCurve],
    at: (t, lane) => boxAt(s.boxes, t, lane), choose: (box) => firstValue(box?.name),
    describe: (box) => `${box.name} = ${box.op}\n${s.lanes[box.lane]}: ${time(box.duration)} from ${time(box.start)}${box.waits ? `\nafter waiting ${time(box.waits)}` : ""}\n${bytes(box.alive)} alive`,
  });
  const peak = s.boxes[s.peak_box];
  const most = Math.max(1, s.peak);
  const folded = new Map();
  for (const row of s.alive_at_peak) {
    const key = JSON.stringify([row.type, row.role, row.location, row.name.replace(/\d+/g, "0")]);
    folded.set(key, [...(folded.get(key) ?? []), row]);
  }
  const groups = [...folded.values()].sort((a, b) => b[0].nbytes * b.length - a[0].nbytes * a.length);
  const alive = groups.map((g) => h("tr", {}, h("td", {}, nameLinks(g[0].name), g.length > 1 ? h("span", {className: "times num", title: g.map((r) => r.name).slice(0, 60).join("\n")}, `x ${g.length}`) : ""), h("td", {className: "mono"}, typeSpans(g[0].type)),
    numbers(bytes(g[0].nbytes)), h("td", {}, h("span", {className: "meter", style: `width:${Math.round(160 * g[0].nbytes * g.length / most)}px`})), h("td", {}, g[0].role), h("td", {}, lineLink(g[0].location))));
  const page = h("div", {className: "page"},
    R.run ? renderRun(R.run) : "",
    R.simulation ? renderSimulation(R.simulation) : "",
    h("h2", {}, "Estimated schedule of each device: ", num(time(s.total)), ", of which computation waits ", num(time(s.waiting))),
    h("p", {className: "faint"}, "Operations in program order on a machine of ", s.machine.map(([word, value]) => `${value.toExponential().replace(/e\+?/, "e")} ${word}`).join(", "), ". Only ratios of these times are meaningful."),
    h("div", {className: "legend"}, h("span", {}, h("i", {style: "background:var(--accent)"}), "computation"), h("span", {}, h("i", {style: "background:var(--coll)"}), "transfer"),
      h("span", {}, h("i", {style: "background:repeating-linear-gradient(45deg,var(--wait) 0 2px,transparent 2px 5px)"}), "computation waits"), h("span", {}, MOVES)),
    lanes, curve,
    h("h2", {}, "Alive at the peak: ", num(bytes(s.peak)), peak ? [" at ", nameLinks(peak.name), " = ", peak.op] : ""),
    h("p", {}, num(bytes(s.arguments)), " of arguments, ", num(bytes(s.results)), " of results, ", num(bytes(s.temporaries)), " of temporaries"),
    table([["value"], ["type"], ["bytes", "n"], [""], ["role"], ["line"]], alive, {label: "Alive at the peak"}));
  view.replaceChildren(page);
  drawAll();
  pickRows([...page.querySelectorAll("tbody tr")].map((e) => { e.tabIndex = 0; return e; }), () => {});
}

// Tables of words: columns of numbers are aligned at the right.
function renderTables(tables) {
  return tables.map((t) => {
    const kinds = t.head.map((_, column) => (column && t.rows.every((row) => /^\d/.test(row[column])) ? "n" : column ? "" : "part"));
    return table(t.head.map((word, i) => [word, kinds[i]]),
      t.rows.map((row) => h("tr", {}, row.map((cell, i) => h("td", {className: kinds[i]}, cell)))), {label: t.head[0]});
  });
}

// The plan that chose the shardings: its decisions, and the alternatives with their costs.
function renderPlanning(view) {
  const plan = R.planning;
  view.replaceChildren(h("div", {className: "page"}, h("h2", {}, plan.title), renderTables(plan.tables), plan.sentences.map((s) => h("p", {}, s))));
}

// The tables of a simulated step on a described machine.
function renderSimulation(simulation) {
  return [h("h2", {}, "Simulation: ", simulation.title), renderTables(simulation.tables), simulation.sentences.map((s) => h("p", {}, s)),
    simulation.lanes.map((text) => h("pre", {className: "mono lanes", tabIndex: 0, "aria-label": "Schedule of a pipeline, with a line for each rank"}, text))];
}

// The lanes of a measured run, one for each worker, and the time that each was busy.
function renderRun(run) {
  const tasks = run.tasks, canvas = laneCanvas("Lanes of the workers; the table below sums them up", run.lanes);
  timeAxis({
    name: "run", total: run.total, lanes: run.lanes, canvases: [canvas], draw: [(p) => drawRun(p, run)],
    at: (t, lane) => boxAt(tasks, t, lane), choose: (task) => firstValue(run.activities[task?.activity]?.name),
    describe: (task) => {
      const a = run.activities[task.activity];
      return `${a.name}\n${run.lanes[task.lane]}: ${a.kernel}, ${time(task.duration)} from ${time(task.start)}${a.where ? `\n${a.where}` : ""}`;
    },
  });
  const rows = run.lanes.map((name, i) => h("tr", {}, h("td", {}, name), numbers(run.busy[i][0], time(run.busy[i][1]), `${decimal(100 * run.busy[i][1] / Math.max(run.total, 1))}%`)));
  return [h("h2", {}, "Measured run: ", num(time(run.total)), " on ", num(plural(run.lanes.length, "thread"))),
    run.lost ? h("p", {role: "note"}, num(plural(run.lost, "task")), " at the beginning were not recorded.") : "",
    h("div", {className: "legend"}, h("span", {}, h("i", {style: "background:var(--accent)"}), "computation"), h("span", {}, h("i", {style: "background:var(--coll)"}), "communication"), h("span", {}, MOVES)),
    canvas,
    table([["thread"], ["tasks", "n"], ["busy", "n"], ["of the run", "n"]], rows, {label: "Threads of the measured run"})];
}
const firstValue = (name) => FIRST_NAME.exec(name ?? "")?.[0];

// Return the last box at a time, in one lane or, with -1, in any.
function boxAt(boxes, t, lane) {
  let best = null;
  for (const box of boxes) {
    if ((lane < 0 || box.lane === lane) && box.start <= t && t < box.start + Math.max(box.duration, 1)) best = box;
  }
  return best;
}
function prepare(canvas, range) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = parseFloat(canvas.style.height);
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const g = canvas.getContext("2d");
  g.scale(ratio, ratio);
  g.clearRect(0, 0, width, height);
  g.font = "12px system-ui, sans-serif";
  const css = getComputedStyle(document.documentElement);
  return {g, range, width, height, color: (name) => css.getPropertyValue(name).trim(), x: (t) => LEFT + (t - range[0]) / (range[1] - range[0]) * (width - LEFT)};
}
function drawTicks({g, range, width, height, color, x}) {
  const step = 10 ** Math.floor(Math.log10((range[1] - range[0]) / 4));
  const wide = [1, 2, 5, 10].map((m) => m * step).find((m) => (range[1] - range[0]) / m <= Math.min(8, (width - LEFT) / 70)) ?? step * 10;
  g.fillStyle = color("--faint");
  g.strokeStyle = color("--line");
  for (let t = Math.ceil(range[0] / wide) * wide; t <= range[1]; t += wide) {
    const label = time(Math.round(t));
    if (x(t) + 3 + g.measureText(label).width < width) g.fillText(label, x(t) + 3, 13);
    g.beginPath(); g.moveTo(x(t), 4); g.lineTo(x(t), height); g.stroke();
  }
  g.clearRect(0, 0, LEFT - 1, height);
}
// Draw boxes in lanes; `look` returns the color of a box, its text, and whether it is selected.
function drawLanes(p, lanes, boxes, look) {
  const {g, range, color, x} = p, tall = laneHeight(lanes);
  const drawn = new Map(); // Neighbouring boxes narrower than a pixel are drawn once.
  for (const box of boxes) {
    const y = TOP + box.lane * tall;
    if (box.waits && box.start > range[0] && box.start - box.waits < range[1]) hatch(g, Math.max(LEFT, x(box.start - box.waits)), y + 6, Math.min(x(box.start), p.width), tall - 12, color("--wait"));
    const a = Math.max(LEFT, x(box.start)), b = Math.min(p.width, x(box.start + box.duration));
    if (b < LEFT || a > p.width || b <= a) continue;
    if (b - a < 1 && Math.floor(a) === drawn.get(box.lane)) continue;
    drawn.set(box.lane, Math.floor(a));
    const [fill, label, chosen] = look(box);
    g.fillStyle = fill;
    g.fillRect(a, y + 2, Math.max(b - a - (b - a > 3 ? 1 : 0), 1), tall - 4);
    if (chosen) { g.strokeStyle = color("--text"); g.lineWidth = 2; g.strokeRect(a, y + 2, Math.max(b - a - 1, 1), tall - 4); g.lineWidth = 1; }
    if (b - a > 46) {
      g.save(); g.beginPath(); g.rect(a, y, b - a - 3, tall); g.clip();
      g.fillStyle = color("--back"); g.fillText(label, a + 4, y + tall / 2 + 4); g.restore();
    }
  }
  g.fillStyle = color("--text");
  lanes.forEach((name, i) => g.fillText(name, 4, TOP + (i + 0.5) * tall + 4, LEFT - 8));
}
function drawSchedule(p) {
  const s = R.schedule, colors = [p.color("--accent"), p.color("--coll")];
  drawTicks(p);
  drawLanes(p, s.lanes, s.boxes, (box) => [colors[box.lane ? 1 : 0], `${box.op} ${box.name}`, box.name === state.value]);
}
function drawRun(p, run) {
  const colors = [p.color("--accent"), p.color("--coll")];
  drawTicks(p);
  drawLanes(p, run.lanes, run.tasks, (task) => {
    const a = run.activities[task.activity];
    return [colors[a.collective ? 1 : 0], a.name, !!state.value && firstValue(a.name) === state.value];
  });
}
function hatch(g, a, y, b, height, color) {
  if (b - a < 1) return;
  g.save(); g.beginPath(); g.rect(a, y, b - a, height); g.clip();
  g.strokeStyle = color; g.lineWidth = 1.5; g.beginPath();
  for (let k = a - height; k < b; k += 6) { g.moveTo(k, y + height); g.lineTo(k + height, y); }
  g.stroke(); g.restore();
}
function drawCurve(p) {
  const {g, color, x, height} = p, s = R.schedule;
  drawTicks(p);
  const top = Math.max(1, ...[s.peak]), y = (n) => height - 4 - n / top * (height - 26);
  const area = (value, fill) => {
    g.beginPath(); g.moveTo(LEFT, y(0));
    let end = LEFT;
    for (const box of s.boxes) {
      const a = Math.max(LEFT, x(box.start)), b = Math.min(p.width, x(box.start + Math.max(box.duration, 1)));
      if (b < LEFT || a > p.width) continue;
      g.lineTo(a, y(value(box))); g.lineTo(Math.max(b, a), y(value(box))); end = Math.max(end, b);
    }
    g.lineTo(end, y(0)); g.closePath(); g.fillStyle = fill; g.fill();
  };
  area((b) => b.alive, color("--bar"));
  area(() => s.arguments, color("--wait"));
  const peak = s.boxes[s.peak_box];
  if (peak) {
    const a = x(peak.start);
    if (a >= LEFT && a <= p.width) { g.strokeStyle = "#d1242f"; g.beginPath(); g.moveTo(a, 18); g.lineTo(a, height); g.stroke(); }
  }
  g.fillStyle = color("--text");
  g.fillText("memory", 4, 30);
  g.fillText(bytes(s.peak), 4, 46);
  g.fillStyle = color("--faint");
  if (s.arguments) g.fillText("arguments", 4, Math.max(62, Math.min(height - 18, y(s.arguments) + 4)));
  if (s.arguments) g.fillText(bytes(s.arguments), 4, Math.max(76, Math.min(height - 4, y(s.arguments) + 18)));
}

// Source

function renderSource(view) {
  const file = state.file in R.files ? state.file : 0;
  if (!R.files.length) { view.replaceChildren(h("p", {className: "empty"}, "No operation has a source line.")); return; }
  const costs = new Map(R.source.filter((r) => r.line && r.file === file).map((r) => [r.line, r]));
  const most = Math.max(1, ...R.source.map((r) => r.flops)), none = R.source.find((r) => !r.line);
  const count = new Map();
  for (const c of R.collectives) if (c.location?.[0] === file) count.set(c.location[1], (count.get(c.location[1]) ?? 0) + 1);
  const source = R.files[file].text.split("\n");
  const lines = R.files[file].text ? source.map((text, i) => [i + 1, text]) : [...costs.keys()].map((n) => [n, ""]);
  const cell = (value, show) => h("td", {className: "n"}, value ? num(show(value)) : "");
  const rows = lines.map(([n, code]) => {
    const cost = costs.get(n);
    return h("tr", {className: (cost ? "hot" : "") + (n === state.line ? " chosen" : ""), tabIndex: cost ? 0 : undefined, "data-line": n, onclick: cost ? () => go({line: n, file}) : undefined},
      h("td", {className: "n faint"}, String(n)), cell(cost?.flops, flops), h("td", {}, cost?.flops ? h("span", {className: "meter", style: `width:${Math.ceil(60 * cost.flops / most)}px`}) : ""),
      cell(cost?.memory, bytes), cell(cost?.sent, bytes), cell(cost?.peak, bytes), h("td", {className: "code"}, code || " "));
  });
  const page = h("div", {className: "page"},
    R.files.length > 1 ? h("p", {}, R.files.map((f, i) => [h("button", {type: "button", className: i === file ? "on" : "", onclick: () => go({file: i, line: null})}, f.name), " "])) : h("h2", {}, R.files[file].name),
    R.files[file].text ? "" : h("p", {className: "faint"}, "The text of this file could not be read when the report was made."),
    none && (none.flops || none.memory) ? h("p", {className: "faint"}, "operations without a line: ", num(flops(none.flops)), " flops, ", num(bytes(none.memory)), ", ", num(bytes(none.sent)), " sent") : "",
    state.line ? lineCard(file, state.line) : "",
    table([["line", "n"], ["flops", "n"], [""], ["bytes", "n"], ["sent", "n"], ["at the peak", "n"], ["text"]], rows, {className: "source", label: "Source with costs of one run on each device"}));
  view.replaceChildren(page);
  const hot = rows.filter((r) => r.classList.contains("hot"));
  const chosen = rows.find((r) => Number(r.dataset.line) === state.line);
  (chosen ?? hot[0])?.scrollIntoView({block: "center"});
  pickRows(hot, (i) => go({file, line: Number(hot[i].dataset.line)}), hot.indexOf(chosen));
}
function lineCard(file, line) {
  const here = (loc) => loc && loc[0] === file && loc[1] === line;
  const values = R.definitions.filter((d) => here(d.location)), collectives = R.collectives.filter((c) => here(c.location));
  const first = values.slice(0, 60);
  return h("div", {className: "card"}, h("button", {type: "button", className: "close", onclick: () => go({line: null}), "aria-label": "Close"}, "x"),
    h("h3", {style: "margin-top:0"}, `${R.files[file].name}:${line}`),
    h("p", {}, "values: ", first.map((d) => [link(d.name, () => selectValue(d.function, d.name)), " "]), values.length > 60 ? "and more" : ""),
    collectives.length ? h("p", {}, "collectives: ", collectives.slice(0, 60).map((c) => [link(c.value, () => go({view: "communication", row: R.collectives.indexOf(c)})), ` ${c.kind} `])) : "");
}

// Tips, help and keys

function tip(e, content) {
  let box = document.querySelector(".tip");
  if (!box) document.body.append(box = h("div", {className: "tip", role: "tooltip"}));
  box.textContent = content;
  box.style.left = `${Math.min(e.clientX + 14, innerWidth - box.offsetWidth - 8)}px`;
  box.style.top = `${Math.min(e.clientY + 14, innerHeight - box.offsetHeight - 8)}px`;
}
function hideTip() { document.querySelector(".tip")?.remove(); }
function showHelp() {
  $("help").replaceChildren(h("h2", {}, "Keys"), h("table", {}, h("tbody", {}, KEYS.map(([key, what]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, what))))),
    h("form", {method: "dialog"}, h("button", {}, "close")));
  $("help").showModal();
}
document.addEventListener("keydown", (e) => {
  if (!R || e.ctrlKey || e.metaKey || e.altKey || $("help").open) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
  const act = {
    j: () => moveCursor(1), k: () => moveCursor(-1), "?": showHelp, Escape: () => go({value: null, fn: null}),
    "/": () => { if (state.view !== "stages") go({view: "stages"}); setTimeout(() => $("search")?.focus()); },
    n: () => state.view === "stages" && nextMatch(1), N: () => state.view === "stages" && nextMatch(-1),
    "]": () => go({view: "stages", stage: Math.min(state.stage + 1, R.stages.length - 1), base: null}),
    "[": () => go({view: "stages", stage: Math.max(state.stage - 1, 0), base: null}),
    d: () => go({view: "stages", diff: state.diff ? null : "1"}), f: () => go({view: "stages", all: state.all ? null : "1"}),
    Enter: () => { if (e.target.tagName === "BUTTON") return false; openCursor(); },
  }[e.key] ?? (e.key >= "1" && e.key <= String(TABS.length) ? () => go({view: TABS[Number(e.key) - 1][0]}) : null);
  if (act && act() !== false) e.preventDefault();
});

// Notebooks and pages of Sphinx state their theme in attributes, which may differ from the preference of the browser.
function followTheme() {
  const frame = window.frameElement; // null outside of a frame, and in a page of another origin.
  if (!frame) return;
  const dark = [...document.styleSheets[0].cssRules].find((rule) => rule.media?.mediaText.includes("color-scheme"));
  const preference = dark.media.mediaText;
  const update = () => {
    const theme = ["dark", "light"].find((name) => frame.closest(`[data-jp-theme-light="${name === "light"}"], .vscode-${name}, html[theme=${name}], [data-theme=${name}]`));
    dark.media.mediaText = theme ? (theme === "dark" ? "all" : "not all") : preference;
    document.documentElement.style.colorScheme = theme ?? "";
    if (R) render();
  };
  update();
  const page = frame.ownerDocument, attributes = {attributeFilter: ["data-jp-theme-light", "class", "theme", "data-theme"]};
  for (const e of [page.documentElement, page.body]) new MutationObserver(update).observe(e, attributes);
}

async function start() {
  followTheme();
  const packed = Uint8Array.from(atob($("shardir-report").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  R = await new Response(stream).json();
  for (const stage of R.stages) stage.lines = stage.line_runs.flatMap(([first, count]) => Array.from({length: count}, (_, i) => first + i));
  if (R.planning) TABS.push(["plan", "Plan"]);
  index = makeIndex();
  renderFacts();
  $("keys").addEventListener("click", showHelp);
  $("tabs").addEventListener("keydown", moveTab);
  addEventListener("beforeprint", () => { if (state.view === "stages") text.list.drawAll(); });
  addEventListener("afterprint", () => { if (state.view === "stages") text.list.draw(); });
  addEventListener("hashchange", render);
  render();
  document.body.dataset.ready = "1";
  // Index one stage after the other while the page is idle, so that the first selection is fast.
  const indexFrom = (i) => { if (i < R.stages.length) { stageIndex(i); setTimeout(indexFrom, 0, i + 1); } };
  setTimeout(indexFrom, 50, 0);
}
start().catch((error) => {
  $("view").replaceChildren(h("p", {className: "empty", role: "alert"}, `The data of this page cannot be read: ${error.message}`));
  throw error;
});
