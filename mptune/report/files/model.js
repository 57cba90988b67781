// A run as the page asks about it. A trial is its position in the order of evaluation; people count from 1.

const VALID = new Set(["ok", "inaccurate", "fragile", "violation"]);
const FEASIBLE = 0;
const INFEASIBLE = 1;
const FAILED = 2;
/** Kinds of trials: how they are named, and the shapes that tell them apart without colour. */
const KINDS = [
  { name: "feasible", shape: "circle" },
  { name: "infeasible", shape: "triangle" },
  { name: "failed", shape: "cross" },
];

class Run {
  constructor(data, index) {
    Object.assign(this, data);
    this.index = index;
    this.count = data.feasible.length;
    this.higher = new Set(data.higher_is_better);
    this.metricNames = Object.keys(data.metrics);
    this.sourced = new Map(Object.entries(data.sources.by_trial).map(([trial, lines]) => [Number(trial), lines]));
    const valid = data.statuses.values.map((status) => VALID.has(status));
    this.kinds = Uint8Array.from(data.feasible, (feasible, trial) =>
      feasible ? FEASIBLE : valid[data.statuses.codes[trial]] ? INFEASIBLE : FAILED,
    );
    this.kindCounts = [0, 0, 0];
    for (const kind of this.kinds) this.kindCounts[kind] += 1;
    this.columns = this.allColumns();
    this.selected = data.best ?? data.closest ?? data.baseline ?? (this.count ? 0 : null);
  }

  status(trial) {
    return this.statuses.values[this.statuses.codes[trial]];
  }

  message(trial) {
    return this.messages.values[this.messages.codes[trial]];
  }

  warning(trial) {
    return this.warnings.values[this.warnings.codes[trial]];
  }

  metric(name, trial) {
    return this.metrics[name]?.[trial] ?? null;
  }

  /** What a person is told in a line. */
  described(trial) {
    const numbers = ["time_ms", "error"].filter((name) => this.metric(name, trial) !== null);
    return [this.status(trial), ...numbers.map((name) => `${name} ${number(this.metric(name, trial))}`)].join(", ");
  }

  configuration(trial) {
    return this.parameters.map((parameter) => `${parameter.name}=${parameter.texts[parameter.cells.codes[trial]]}`);
  }

  /** The limit on a metric, null where there is none. */
  limit(metric) {
    if (this.threshold === null) return null;
    if (typeof this.threshold === "number") return metric === "error" ? this.threshold : null;
    return metric === "error" || metric.startsWith("error.") ? (this.threshold[metric.slice(6)] ?? null) : null;
  }

  renderCommand(trial) {
    return [this.render_command, ...this.parameters.map((p) => p.options[p.cells.codes[trial]])].join(" ");
  }

  source(trial) {
    const lines = this.sourced.get(trial);
    return lines ? lines.map((line) => this.sources.lines[line]).join("\n") : null;
  }

  /** Valid trials with errors of their own no other one beats in both metrics, the best of the first one first. */
  front(x, y) {
    const [xs, ys] = [this.metrics[x], this.metrics[y]];
    if (!xs || !ys) return [];
    const [xSign, ySign] = [this.higher.has(x) ? -1 : 1, this.higher.has(y) ? -1 : 1];
    const numbered = [];
    for (let trial = 0; trial < this.count; trial++) {
      if (this.kinds[trial] === FAILED) continue;
      if (xs[trial] !== null && ys[trial] !== null) numbered.push(trial);
    }
    numbered.sort((a, b) => xSign * (xs[a] - xs[b]) || ySign * (ys[a] - ys[b]) || a - b);
    const front = [];
    for (const trial of numbered) {
      const last = front.at(-1);
      const better = last === undefined || ySign * ys[trial] < ySign * ys[last];
      if (better || (xs[trial] === xs[last] && ys[trial] === ys[last])) front.push(trial);
    }
    return front;
  }

  /** The trials that were the best feasible one when they were evaluated. */
  improvements() {
    const values = this.metrics[this.objective] ?? [];
    const sign = this.higher.has(this.objective) ? -1 : 1;
    const found = [];
    for (let trial = 0; trial < values.length; trial++) {
      if (this.kinds[trial] !== FEASIBLE || values[trial] === null) continue;
      if (!found.length || sign * values[trial] < sign * values[found.at(-1)]) found.push(trial);
    }
    return found;
  }

  /** What table and filter know of a trial: a name, a number or text to compare, and a text to show. */
  allColumns() {
    const names = new Set(this.parameters.map((parameter) => parameter.name));
    const own = (name) => (names.has(name) ? `trial.${name}` : name);
    const metric = (name) => ({
      name: own(name), numeric: true, key: (t) => this.metric(name, t), text: (t) => number(this.metric(name, t)),
    });
    const choice = (name, cells, texts) => ({
      name, cells, texts, numeric: false, key: (t) => cells.codes[t], text: (t) => texts[cells.codes[t]],
    });
    const parameter = ({ name, cells, texts }) => {
      const numeric = cells.values.every((value) => typeof value === "number");
      return numeric ? { ...choice(name, cells, texts), numeric, key: (t) => cells.values[cells.codes[t]] }
        : choice(name, cells, texts);
    };
    const leading = this.metricNames.filter((name) => !/^(error\.|log10_error|time_.+_ms)/.test(name)).slice(0, 5);
    const others = this.metricNames.filter((name) => !leading.includes(name));
    return [
      { name: own("trial"), numeric: true, key: (t) => t + 1, text: (t) => String(t + 1) },
      choice(own("status"), this.statuses, this.statuses.values),
      ...leading.map(metric),
      ...this.parameters.map(parameter),
      ...others.map((name) => ({ ...metric(name), minor: true })),
      choice(own("message"), this.messages, this.messages.values.map((text) => text.split("\n", 1)[0])),
    ];
  }
}
