// The trials as a table: sorted, filtered, and only the rows in sight in the document.

const ROW = 30;
/** Rows beside those in sight, so that scrolling shows no gap. */
const SPARE = 8;
const PRINTED = 40;
const CHARACTER = 7.4;
const WIDEST = 46;

class TrialTable {
  constructor(section, state) {
    Object.assign(this, { section, state, sort: { name: null, down: false }, order: [], printing: false });
    this.box = el("input", {
      type: "search", id: "filter", autocomplete: "off", spellcheck: "false",
      placeholder: "fp16 time_ms<2 status=ok",
      "aria-describedby": "filter-said", input: () => state.filter(this.box.value),
    });
    this.said = el("span", { id: "filter-said", role: "status" });
    this.chips = el("div", { class: "chips", role: "group", "aria-label": "Filter by status" });
    this.columns = el("colgroup");
    this.head = el("tr");
    this.body = el("tbody");
    this.grid = el("table", { "aria-labelledby": "trials-title" }, this.columns,
      el("thead", {}, this.head), this.body);
    this.scroller = el("div", { class: "scroller", tabindex: 0, role: "group", "aria-label":
      "Trials; arrow keys choose one", scroll: () => this.drawRows(), keydown: (event) => this.key(event) }, this.grid);
    section.append(
      el("div", { class: "card-head" }, el("h2", { id: "trials-title" }, "Trials"),
        el("label", { class: "filter", for: "filter" }, el("span", {}, "Filter"), this.box)),
      el("div", { class: "filter-line" }, this.chips, this.said), this.scroller);
    new ResizeObserver(() => this.drawRows()).observe(this.scroller);
  }

  /** Show another run. */
  show() {
    const { run } = this.state;
    this.section.hidden = !run.count;
    if (!run.columns.some((column) => column.name === this.sort.name)) this.sort = { name: null, down: false };
    this.widths = run.columns.map((column) => this.widthOf(column));
    refill(this.columns, ...this.widths.map((width) => {
      const col = el("col");
      col.style.width = `${width}px`;
      return col;
    }));
    this.grid.style.width = `${this.widths.reduce((a, b) => a + b, 0)}px`;
    refill(this.chips, ...run.statuses.values.map((status, code) => {
      const count = run.statuses.codes.reduce((sum, other) => sum + (other === code), 0);
      return el("button", { type: "button", class: "chip", "data-status": status, click: () => this.toggle(status) },
        glyphOf(run, run.statuses.codes.indexOf(code)), `${status} ${number(count)}`);
    }));
    this.update();
  }

  toggle(status) {
    const term = `status=${status}`;
    this.state.filter(this.box.value.trim() === term ? "" : term);
  }

  widthOf(column) {
    const run = this.state.run;
    const step = Math.max(1, Math.floor(run.count / 500));
    let longest = column.name.length + 2;
    const texts = column.texts ?? [];
    for (const text of texts) longest = Math.max(longest, text.length);
    for (let trial = 0; !column.texts && trial < run.count; trial += step) {
      longest = Math.max(longest, column.text(trial).length);
    }
    const mark = column.name === "status" ? 22 : 0;
    return Math.round(Math.min(WIDEST, longest) * CHARACTER + 26 + mark);
  }

  /** Filter and sort afresh. */
  update() {
    const { run, passes, problem } = this.state;
    if (this.box.value !== this.state.text) this.box.value = this.state.text;
    this.order = [];
    for (let trial = 0; trial < run.count; trial++) if (passes === null || passes[trial]) this.order.push(trial);
    this.sortOrder();
    this.box.setAttribute("aria-invalid", String(problem !== null));
    this.said.classList.toggle("problem", problem !== null);
    this.said.textContent = problem ?? (passes === null ? counted(run.count, "trial")
      : `${number(this.order.length)} of ${counted(run.count, "trial")}`);
    for (const chip of this.chips.children) {
      chip.setAttribute("aria-pressed", String(this.state.text.trim() === `status=${chip.dataset.status}`));
    }
    this.drawHead();
    this.scroller.style.setProperty("--rows", Math.max(1, run.count));
    this.scroller.scrollTop = 0;
    this.drawRows(true);
  }

  sortOrder() {
    const column = this.state.run.columns.find(({ name }) => name === this.sort.name);
    if (!column) return;
    const sign = this.sort.down ? -1 : 1;
    // Values of a parameter have the order they have in the search space.
    const key = column.numeric ? column.key : (trial) => column.cells.codes[trial];
    const keys = new Map(this.order.map((trial) => [trial, key(trial)]));
    this.order.sort((a, b) => {
      const [x, y] = [keys.get(a), keys.get(b)];
      // What is not known comes last, whichever way.
      if (x === null || y === null) return (x === null) - (y === null) || a - b;
      return sign * (x - y) || a - b;
    });
  }

  sortBy(name) {
    const { sort } = this;
    if (sort.name !== name) this.sort = { name, down: false };
    else this.sort = sort.down ? { name: null, down: false } : { name, down: true };
    this.update();
    this.head.querySelector(`[data-column="${CSS.escape(name)}"]`)?.focus();
  }

  drawHead() {
    refill(this.head, ...this.state.run.columns.map((column) => {
      const sorted = column.name === this.sort.name ? (this.sort.down ? "descending" : "ascending") : "none";
      const arrow = { ascending: "▲", descending: "▼", none: "" }[sorted];
      return el("th", { scope: "col", "aria-sort": sorted, class: cellClass(column) },
        el("button", { type: "button", "data-column": column.name, title: column.name,
          click: () => this.sortBy(column.name) }, el("span", {}, column.name),
          el("span", { class: "arrow", "aria-hidden": true }, arrow)));
    }));
  }

  /** Put the rows in sight into the document. */
  drawRows(afresh = false) {
    if (this.section.hidden) return;
    const { scrollTop, clientHeight } = this.scroller;
    const first = this.printing ? 0 : Math.max(0, Math.floor(scrollTop / ROW) - SPARE);
    const inSight = this.printing ? PRINTED : Math.ceil(clientHeight / ROW) + 2 * SPARE;
    const last = Math.min(this.order.length, first + inSight);
    if (!afresh && first === this.first && last === this.last) return;
    Object.assign(this, { first, last });
    this.grid.setAttribute("aria-rowcount", this.order.length + 1);
    this.grid.setAttribute("aria-colcount", this.state.run.columns.length);
    const rows = this.order.slice(first, last).map((trial, i) => this.row(trial, first + i));
    const gap = (count) => {
      const row = el("tr", { class: "gap", "aria-hidden": true });
      row.style.height = `${count * ROW}px`;
      return row;
    };
    const below = this.printing ? 0 : this.order.length - last;
    refill(this.body, gap(first), ...rows, gap(below));
    if (!this.order.length) {
      const none = el("td", { class: "none", colspan: this.widths.length }, "No trial passes the filter.");
      refill(this.body, el("tr", {}, none));
    }
  }

  row(trial, position) {
    const { run } = this.state;
    const chosen = trial === run.selected;
    const role = trial === run.best ? "best" : trial === run.baseline ? "baseline" : null;
    return el("tr", { "data-trial": trial + 1, "aria-rowindex": position + 2, "aria-current": chosen ? "true" : null,
      class: [chosen ? "chosen" : null, role].filter(Boolean).join(" ") || null,
      click: () => this.state.choose(run, trial) },
      run.columns.map((column) => el("td", { class: cellClass(column) },
        column.name === "status" ? glyphOf(run, trial) : null, column.text(trial))));
  }

  /** Show the selected trial, scrolled to where it is. */
  reveal() {
    const position = this.order.indexOf(this.state.run.selected);
    if (position >= 0) {
      const { scrollTop, clientHeight } = this.scroller;
      const [top, bottom] = [position * ROW, (position + 2) * ROW + ROW];
      if (top < scrollTop) this.scroller.scrollTop = top;
      else if (bottom > scrollTop + clientHeight) this.scroller.scrollTop = bottom - clientHeight;
    }
    this.drawRows(true);
  }

  key(event) {
    if (event.target !== this.scroller || !this.order.length) return;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const at = this.order.indexOf(this.state.run.selected);
    const next = Math.max(0, Math.min(this.order.length - 1, at + steps[event.key]));
    this.state.choose(this.state.run, this.order[next]);
  }

  /** While the page is printed, the first rows are in the document whatever is in sight. */
  print(printing) {
    this.printing = printing;
    this.drawRows(true);
    const cut = printing && this.order.length > PRINTED ? `, of which the first ${PRINTED} are printed` : "";
    this.said.textContent = this.said.textContent.replace(/, of which.*$/, "") + cut;
  }
}

const cellClass = ({ numeric, minor }) => [numeric && "right", minor && "minor"].filter(Boolean).join(" ") || null;

/** The mark of a trial's kind. */
function glyphOf(run, trial) {
  const kind = KINDS[run.kinds[trial]];
  return glyph(kind.shape, kind.name, 13);
}
