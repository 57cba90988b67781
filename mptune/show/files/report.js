// In a function of its own: the names of Vega are global.
(() => {
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const ACTIONS = { export: true, source: false, compiled: false, editor: false };
const EMBED = { renderer: "svg", ast: true, actions: ACTIONS };
const STEP = 200;

/** Make an element; children that are not nodes become text. */
function el(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children.map((child) => (child instanceof Node ? child : String(child ?? "-"))));
  return element;
}

/** Return a cell as text, numbers with a few digits. */
function text(cell) {
  if (typeof cell !== "number" || Number.isInteger(cell)) return cell ?? "-";
  const size = Math.abs(cell);
  return size < 1e-3 || size >= 1e6 ? cell.toExponential(2) : Number(cell.toPrecision(4));
}

/** Return the rows that satisfy a filter of words and comparisons; throws an Error for an invalid filter. */
function filtered(words, columns, count) {
  const OPERATORS = /\s*(<=|>=|!=|=|~|<|>)\s*/g;
  const parts = words.replace(OPERATORS, "$1").match(/(?:[^\s"]|"[^"]*")+/g) ?? [];
  const tests = parts.filter((word) => !/^(and|&&?)$/i.test(word)).map((word) => {
    const [, name, operator, right] = /^(.+?)(<=|>=|!=|=|~|<|>)(.*)$/.exec(word) ?? [];
    const wanted = (right ?? word).replaceAll('"', "").toLowerCase();
    if (!operator) return (row) => columns.some(({ cells }) => typeof cells[row] !== "number" && String(cells[row] ?? "").toLowerCase().includes(wanted));
    const column = columns.find((each) => each.name.toLowerCase() === name.replaceAll('"', "").toLowerCase());
    if (!column) throw new Error(`there is no column “${name}”: ${columns.map((each) => each.name).join(", ")}`);
    const limit = Number(wanted);
    const number = (test) => (row) => typeof column.cells[row] === "number" && test(column.cells[row]);
    const same = (row) => column.cells[row] === limit || String(column.cells[row]).toLowerCase() === wanted;
    return {
      "<": number((cell) => cell < limit), ">": number((cell) => cell > limit),
      "<=": number((cell) => cell <= limit), ">=": number((cell) => cell >= limit),
      "=": same, "!=": (row) => !same(row),
      "~": (row) => String(column.cells[row] ?? "").toLowerCase().includes(wanted),
    }[operator];
  });
  return Array.from({ length: count }, (_, row) => row).filter((row) => tests.every((test) => test(row)));
}

function show(section, run) {
  const { columns } = run, count = columns[0].cells.length;
  const [box, said, table, detail] = ["input", ".said", ".trials", ".detail"].map((name) => section.querySelector(name));
  const views = [];
  let order = null, isDown = false, rows = [], limit = STEP, chosen = null, area = null;

  function select() {
    try {
      rows = filtered(box.value, columns, count).filter((row) => !area || area.has(row + 1));
      said.textContent = `${rows.length} of ${count} trials`;
    } catch (error) {
      said.textContent = error.message;
    }
    const isShown = rows.length < count ? Array(count + 1).fill(false) : null;
    if (isShown) for (const row of rows) isShown[row + 1] = true;
    for (const view of views) view.signal("shown", isShown).runAsync();
    limit = STEP;
    draw();
  }

  function draw() {
    const sorted = [...rows];
    if (order) {
      const { cells } = order, sign = isDown ? -1 : 1;
      sorted.sort((a, b) => (cells[a] === null) - (cells[b] === null) || sign * (cells[a] < cells[b] ? -1 : cells[a] > cells[b] ? 1 : 0));
    }
    const head = columns.map((column) => {
      const sort = () => { isDown = order === column && !isDown; order = column; draw(); };
      const mark = column === order ? (isDown ? " ↓" : " ↑") : "";
      const cell = el("th", { scope: "col" }, el("button", { type: "button", onclick: sort }, column.name + mark));
      cell.dataset.column = column.name;
      return cell;
    });
    const body = sorted.slice(0, limit).map((row) => {
      const line = el("tr", { onclick: () => choose(row + 1), className: row + 1 === chosen ? "chosen" : "" },
        ...columns.map(({ cells }) => el("td", {}, text(cells[row]))));
      line.dataset.trial = row + 1;
      return line;
    });
    const more = sorted.length > limit ? [el("button", { type: "button", className: "more", onclick: () => { limit += STEP; draw(); } }, `${sorted.length - limit} more`)] : [];
    table.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body)), ...more);
  }

  function choose(trial) {
    chosen = trial;
    for (const line of table.querySelectorAll("tr[data-trial]")) line.classList.toggle("chosen", Number(line.dataset.trial) === trial);
    for (const view of views) view.signal("chosen", trial).runAsync();
    const others = run.baseline && run.baseline !== trial ? [run.baseline] : [];
    const lines = columns.filter(({ cells }) => cells[trial - 1] !== null && cells[trial - 1] !== "").map(({ name, cells }) =>
      el("tr", {}, el("th", { scope: "row" }, name), ...[trial, ...others].map((each) => el("td", {}, text(cells[each - 1])))));
    const names = el("tr", {}, el("th"), el("th", {}, `trial ${trial}`), ...others.map((each) => el("th", {}, `baseline, trial ${each}`)));
    const source = run.sources.by_trial[trial]?.map((place) => run.sources.lines[place]).join("\n");
    detail.replaceChildren(el("h2", {}, `Trial ${trial}`), el("div", { className: "wide" }, el("table", {}, names, ...lines)),
      ...(run.emit ? [el("pre", { className: "command" }, `${run.emit} ${trial}`)] : []),
      ...(source ? [el("pre", { className: "source" }, source)] : []));
  }

  async function link(place, chart) {
    const { view } = await vegaEmbed(place, chart.spec, EMBED);
    if (!chart.linked) return;
    views.push(view);
    view.addEventListener("click", (event, item) => { if (item?.datum?.trial) choose(item.datum.trial); });
    if (!("brush" in (view.getState().signals ?? {}))) return;
    view.addSignalListener("brush", (name, { x, y }) => {
      const within = (value, ends) => value !== null && value >= Math.min(...ends) && value <= Math.max(...ends);
      const inside = view.data("points").filter((each) => x && y && within(each.x, x) && within(each.y, y));
      area = x && y ? new Set(inside.map((each) => each.trial)) : null;
      select();
    });
  }

  box.addEventListener("input", select);
  select();
  const charts = section.querySelector(".charts");
  return run.charts.map((chart) => {
    const place = el("div", { className: "chart" }), part = el("div", {}, el("h3", {}, chart.name), place);
    charts.append(part);
    return link(place, chart);
  });
}

const drawn = [...document.querySelectorAll("section[data-run]")].flatMap((section) => show(section, data.runs[section.dataset.run]));
for (const spec of data.charts) {
  const place = document.getElementById("shared").appendChild(el("div", { className: "chart" }));
  drawn.push(vegaEmbed(place, spec, EMBED));
}
Promise.allSettled(drawn).then((results) => {
  for (const { reason } of results) if (reason) console.error(reason);
  document.documentElement.dataset.ready = "true";
});
})();
