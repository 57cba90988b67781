// The two plots: what was gained against what was given up, and how the search went.

/** Beside one another, runs differ in colour and shape. */
const RUN_SHAPES = ["circle", "square", "triangle", "wedge", "hexagon", "slab"];
const RUN_COLOURS = 6;
const runColour = (run) => `run-${run.index % RUN_COLOURS}`;
// Where the colours begin again, they meet other shapes.
const runShape = ({ index }) => RUN_SHAPES[(index + Math.floor(index / RUN_COLOURS)) % RUN_SHAPES.length];
/** Trials with a name of their own, and their shapes. */
const SPECIAL = { best: "star", baseline: "diamond" };
/** The later, the further in front. */
const RANK = { failed: 0, infeasible: 1, feasible: 2, front: 3, baseline: 4, best: 5 };
const KIND_RANKS = [RANK.feasible, RANK.infeasible, RANK.failed];
const SPAN_FOR_LOG = 20;
/** Radius of a point, and of one among very many. */
const RADIUS = 4.3;
const RADIUS_OF_MANY = 3.5;
const MANY = 1000;

/** Whether a metric is read better in factors. */
function wantsLog(runs, name) {
  if (name.startsWith("log10_")) return false;
  if (name === "error" || name.startsWith("error.")) return true;
  let [low, high] = [Infinity, 0];
  for (const run of runs) {
    for (let trial = 0; trial < run.count; trial++) {
      const value = run.metric(name, trial);
      if (value === null || run.kinds[trial] === FAILED) continue;
      if (value < 0) return false;
      if (value > 0) [low, high] = [Math.min(low, value), Math.max(high, value)];
    }
  }
  return high / low > SPAN_FOR_LOG;
}

/** A point as a plot draws it, with the look of its kind or, beside other runs, of its run. */
function pointOf(state, run, trial, x, y, kind) {
  const { baseline, best } = run;
  const special = trial === best ? "best" : trial === baseline ? "baseline" : null;
  const several = state.shown().length > 1;
  const plain = KINDS[run.kinds[trial]];
  const name = special ?? kind ?? plain.name;
  const plainSize = run.kinds[trial] === FAILED ? 3 : run.count > MANY ? RADIUS_OF_MANY : RADIUS;
  return {
    run, trial, x, y,
    size: special === "best" ? 7.5 : special ? 5.5 : kind ? 5 : plainSize,
    shape: special ? SPECIAL[special] : several && y !== null ? runShape(run) : plain.shape,
    colour: several ? runColour(run) : special ?? plain.name,
    rank: special || kind ? RANK[name] : KIND_RANKS[run.kinds[trial]],
    hollow: run.kinds[trial] === INFEASIBLE && special === null,
    dim: Number(run === state.run && state.passes !== null && !state.passes[trial]),
  };
}

function described({ run, trial }, state, metrics) {
  const several = state.shown().length > 1;
  const numbers = metrics.filter((name) => run.metric(name, trial) !== null);
  const role = trial === run.best ? ", best" : trial === run.baseline ? ", baseline" : "";
  return [
    `${several ? `${run.label}, ` : ""}trial ${trial + 1}: ${run.status(trial)}${role}`,
    ...numbers.map((name) => `${name} ${number(run.metric(name, trial))}`),
    run.configuration(trial).join(", "),
  ];
}

/** Which marks mean what. */
function legend(state, extra) {
  const runs = state.runs.filter((run) => state.shown().includes(run));
  const entry = (shape, kind, text) => el("span", { class: "key" }, glyph(shape, kind), text);
  const marks = runs.length > 1
    ? [...runs.map((run) => entry(runShape(run), runColour(run), run.label)),
      entry("circle", "hollow", "hollow: infeasible")]
    : KINDS.map(({ name, shape }, kind) => state.run.kindCounts[kind]
      ? entry(shape, name, `${name} ${number(state.run.kindCounts[kind])}`) : null);
  const special = Object.entries(SPECIAL).filter(([name]) => runs.some((run) => run[name] !== null));
  return el("div", { class: "legend" }, marks, special.map(([name, shape]) =>
    entry(shape, runs.length > 1 ? "plain" : name, name)), extra);
}

const option = (name, chosen) => el("option", { value: name, selected: name === chosen }, name);

/** Whether there are two metrics that do not say the same: a speedup is a time. */
const hasFront = (run) => run.metricNames.filter((name) => name !== "speedup").length > 1;

class ParetoChart {
  constructor(section, state) {
    Object.assign(this, { section, state, log: { x: null, y: null } });
    const change = (axis) => ({ target }) => {
      this[axis] = target.value;
      this.log[axis] = null;
      this.update();
    };
    this.controls = Object.fromEntries(["x", "y"].map((axis) => [axis, {
      metric: el("select", { "aria-label": `Metric of the ${axis} axis`, change: change(axis) }),
      log: el("input", { type: "checkbox", "aria-label": `Logarithmic ${axis} axis`, change: ({ target }) => {
        this.log[axis] = target.checked;
        this.update();
      } }),
    }]));
    const labelled = (axis) => el("span", { class: "control" }, el("span", {}, axis), this.controls[axis].metric,
      el("label", {}, this.controls[axis].log, "log"));
    this.key = el("div");
    const host = el("div", { class: "plot", id: "pareto-plot" });
    section.append(
      el("div", { class: "card-head" }, el("h2", { id: "pareto-title" }, "Pareto front"),
        el("div", { class: "controls" }, labelled("x"), labelled("y"))),
      this.key, host, this.draws = el("p", { class: "hint" }),
      el("p", { class: "hint fine" }, "Point at a trial for its configuration, click it for its source, drag to zoom. ",
        "With the keyboard: arrows, then Enter."),
      el("p", { class: "hint coarse" }, "Tap a trial for its configuration and source."));
    this.plot = new Plot(host, (point) => described(point, state, [this.x, this.y]),
      (point) => state.choose(point.run, point.trial));
  }

  /** The metrics there are to choose from; fewer than two make no plot. */
  chooseMetrics() {
    const names = this.state.run.metricNames;
    if (!hasFront(this.state.run)) return false;
    if (!names.includes(this.x)) this.x = names.includes("time_ms") ? "time_ms" : names[0];
    const wanted = ["error", this.state.run.objective, "memory_bytes", ...names];
    const isFree = (name) => names.includes(name) && name !== this.x && name !== "speedup";
    if (!names.includes(this.y)) this.y = wanted.find(isFree) ?? "speedup";
    for (const axis of ["x", "y"]) {
      refill(this.controls[axis].metric, ...names.map((name) => option(name, this[axis])));
      this.log[axis] ??= wantsLog(this.state.shown(), this[axis]);
      this.controls[axis].log.checked = this.log[axis];
    }
    return true;
  }

  update(keepZoom = false) {
    this.section.hidden = !this.chooseMetrics();
    if (this.section.hidden) return;
    const { state, x, y } = this;
    this.draws.textContent = [x, y].some((name) => name.startsWith("error")) ? state.run.front_draws : "";
    const [points, paths] = [[], []];
    let count = 0;
    for (const run of state.shown()) {
      const front = run.front(x, y);
      const onFront = new Set(front);
      count += front.length;
      for (let trial = 0; trial < run.count; trial++) {
        const [px, py] = [run.metric(x, trial), run.metric(y, trial)];
        if (px === null || py === null || run.kinds[trial] === FAILED) continue;
        points.push(pointOf(state, run, trial, px, py, onFront.has(trial) ? "front" : null));
      }
      const colourName = state.shown().length > 1 ? runColour(run) : "front";
      const corners = front.map((trial) => [run.metric(x, trial), run.metric(y, trial)]);
      paths.push({ kind: "front", colour: colourName, points: corners });
    }
    const limits = [["x", state.run.limit(x)], ["y", state.run.limit(y)]].filter(([, limit]) => limit !== null);
    const rules = limits.map(([axis, limit]) => ({
      axis, value: limit, kind: "limit", beyond: true, text: `threshold ${number(limit)}`,
    }));
    refill(this.key, legend(state, el("span", { class: "key" }, svg("svg", { width: 20, height: 14,
      "aria-hidden": true }, svg("path", { d: "M1 3H8V8H14V11H19", class: "line front sample" })), "Pareto front")));
    const title = `${y} against ${x}: ${counted(points.length, "trial")}, ${number(count)} on the Pareto front. `;
    this.plot.show({
      x: { label: x, log: this.log.x }, y: { label: y, log: this.log.y }, points, paths, rules,
      selected: { run: state.run, trial: state.run.selected },
      title: `${title}Arrow keys go from trial to trial, Enter chooses one.`,
    }, keepZoom);
  }
}

class ProgressChart {
  constructor(section, state) {
    Object.assign(this, { section, state });
    this.key = el("div");
    const host = el("div", { class: "plot", id: "progress-plot" });
    section.append(el("div", { class: "card-head" }, el("h2", { id: "progress-title" }, "Progress")),
      this.key, host);
    this.plot = new Plot(host, (point) => described(point, state, [state.run.objective, "error"]),
      (point) => state.choose(point.run, point.trial));
  }

  update(keepZoom = false) {
    const { state } = this;
    const name = state.run.objective;
    const runs = state.shown().filter((run) => run.objective === name);
    const [points, paths] = [[], []];
    for (const run of runs) {
      for (let trial = 0; trial < run.count; trial++) {
        const value = run.kinds[trial] === FAILED ? null : run.metric(name, trial);
        points.push(pointOf(state, run, trial, trial + 1, value, null));
      }
      const found = run.improvements();
      const steps = found.map((trial) => [trial + 1, run.metric(name, trial)]);
      if (steps.length) steps.push([run.count, steps.at(-1)[1]]);
      const colourName = state.shown().length > 1 ? runColour(run) : "front";
      paths.push({ kind: "front", colour: colourName, points: steps });
    }
    const base = state.run.baseline === null ? null : state.run.metric(name, state.run.baseline);
    const rules = base === null ? [] : [{ axis: "y", value: base, kind: "base", text: `baseline ${number(base)}` }];
    this.section.hidden = !state.run.count;
    refill(this.key, legend(state, el("span", { class: "key" }, svg("svg", { width: 20, height: 14,
      "aria-hidden": true }, svg("path", { d: "M1 3H8V8H14V11H19", class: "line front sample" })), "best so far")));
    const best = state.run.best === null ? "none feasible" : `best ${number(state.run.metric(name, state.run.best))}`;
    this.plot.show({
      x: { label: "evaluation", log: false, whole: true },
      y: { label: name, log: wantsLog(runs, name) },
      points, paths, rules,
      selected: { run: state.run, trial: state.run.selected },
      title: `${name} of ${counted(state.run.count, "evaluation")} in their order, ${best}.`,
    }, keepZoom);
  }
}
