// The chosen trial: its configuration and numbers beside the baseline's, its errors, its message, its source.

class Detail {
  constructor(section, source, state) {
    Object.assign(this, { section, source, state });
  }

  update() {
    const { run } = this.state;
    const trial = run.selected;
    this.section.hidden = this.source.hidden = trial === null;
    if (trial === null) return;
    const parts = [
      this.heading(run, trial),
      ...this.said(run, trial),
      this.numbers(run, trial),
      this.errors(run, trial),
      this.values(run, trial),
      this.commands(run, trial),
    ];
    refill(this.section, parts);
    this.drawSource(run, trial);
  }

  heading(run, trial) {
    const kind = KINDS[run.kinds[trial]];
    const roles = [trial === run.best ? "best" : null, trial === run.baseline ? "baseline" : null,
      trial === run.closest ? "closest" : null].filter(Boolean);
    const step = (by, text, label) => el("button", { type: "button", class: "small", "aria-label": label,
      disabled: trial + by < 0 || trial + by >= run.count, click: () => this.state.choose(run, trial + by) }, text);
    return el("div", { class: "card-head" },
      el("h2", { id: "detail-title" }, `Trial ${number(trial + 1)}`),
      el("span", { class: `badge ${kind.name}` }, glyph(kind.shape, kind.name, 13), run.status(trial)),
      roles.map((role) => el("span", { class: "badge" }, role)),
      el("span", { class: "steps" }, step(-1, "‹", "Previous trial"), step(1, "›", "Next trial")));
  }

  said(run, trial) {
    const [message, warning] = [run.message(trial), run.warning(trial)];
    return [
      message ? el("pre", { class: "message", tabindex: 0, "aria-label": "Message" }, message) : null,
      warning ? el("p", { class: "warning" }, warning) : null,
    ];
  }

  numbers(run, trial) {
    const names = run.metricNames.filter((name) => !name.startsWith("error.") && run.metric(name, trial) !== null);
    if (!names.length) return el("p", { class: "hint" }, "It has no numbers: it did not run to its end.");
    return this.beside(run, trial, "metric", names.map((name) => [name, (t) => number(run.metric(name, t)),
      (t) => run.metric(name, t)]));
  }

  values(run, trial) {
    return this.beside(run, trial, "parameter", run.parameters.map((parameter) => [parameter.name,
      (t) => parameter.texts[parameter.cells.codes[t]], (t) => parameter.texts[parameter.cells.codes[t]]]), true);
  }

  /** A table of the trial beside the baseline, where that is another one. */
  beside(run, trial, what, rows, markChanges = false) {
    const base = run.baseline !== trial ? run.baseline : null;
    const head = [what, `trial ${number(trial + 1)}`, ...(base === null ? [] : ["baseline"])];
    return el("table", { class: "pairs" },
      el("thead", {}, el("tr", {}, head.map((text, i) => el("th", { scope: "col", class: i ? "right" : null }, text)))),
      el("tbody", {}, rows.map(([name, text, exact]) => {
        const changed = markChanges && base !== null && text(trial) !== text(base);
        return el("tr", { class: changed ? "changed" : null }, el("th", { scope: "row" }, breakable(name)),
          [trial, ...(base === null ? [] : [base])].map((t) =>
            el("td", { class: markChanges ? "right" : "right whole", title: exact(t) }, text(t))));
      })));
  }

  errors(run, trial) {
    const names = run.metricNames.filter((name) => name.startsWith("error.") && run.metric(name, trial) !== null);
    if (!names.length) return null;
    const whole = typeof run.threshold === "number" && !run.has_further_metrics ? run.threshold : null;
    const limits = names.map((name) => run.limit(name) ?? whole);
    const judged = limits.some((limit) => limit !== null);
    const named = run.has_further_metrics ? ["measured by", "error"] : ["output", run.error_metric];
    const head = [...named, ...(judged ? ["threshold", "verdict"] : [])];
    return el("table", { class: "pairs" },
      el("thead", {}, el("tr", {}, head.map((text, i) => el("th", { scope: "col", class: i ? "right" : null }, text)))),
      el("tbody", {}, names.map((name, i) => {
        const error = run.metric(name, trial);
        const verdict = limits[i] === null ? "" : error <= limits[i] ? "within" : "above";
        const measured = run.has_further_metrics ? run.measured_by[name] : name.slice(6);
        return el("tr", {}, el("th", { scope: "row" }, breakable(measured)),
          el("td", { class: "right whole", title: error }, number(error)),
          judged ? el("td", { class: "right whole" }, number(limits[i])) : null,
          judged ? el("td", { class: "right whole" }, verdict) : null);
      })));
  }

  commands(run, trial) {
    if (!run.emit_command || run.kinds[trial] === FAILED) return null;
    return el("div", { class: "commands" }, el("h3", {}, "Take it home"),
      commandLine("command that writes this trial's source", `${run.emit_command} trial${trial + 1}`));
  }

  /** The name, values and source of each kernel in a text; of a single kernel the source alone. */
  kernels(run, text) {
    if (!run.sources.has_headings) return [["", "", text]];
    const [before, ...parts] = text.split(/^\/\/ ---- (\w+): (.*) ----\n/m);
    const found = before.trim() ? [["", "", before]] : [];
    for (let i = 0; i < parts.length; i += 3) found.push([parts[i], parts[i + 1], parts[i + 2].trimEnd()]);
    return found;
  }

  drawSource(run, trial) {
    const text = run.source(trial);
    const { remarks } = run.sources;
    const title = el("h2", { id: "source-title" }, `Source of trial ${number(trial + 1)}`);
    const head = el("div", { class: "card-head" }, title,
      text === null ? null : el("span", { class: "hint" }, "without the prelude"));
    const noted = remarks.map((remark) => el("p", { class: "hint" }, remark));
    if (text !== null) {
      head.append(copyButton("the source", () => text));
      refill(this.source, head, ...noted, ...this.kernels(run, text).map(([name, values, code]) => el("div", { class: "kernel" },
        name ? [el("h3", {}, name), el("p", { class: "hint" }, breakable(values))] : null,
        el("pre", { class: "code", tabindex: 0, "aria-label": `Source ${name}`.trim() }, el("code", {}, code)))));
      return;
    }
    const why = `This report holds the sources of ${counted(run.sourced.size, "trial")}: best, baseline, the first ` +
      "failure of each kind, the front, then the fastest. This trial's is not among them.";
    const print = run.render_command === "" ? [] : [
      el("p", { class: "hint" }, "Where the kernel's definition is, this prints it:"),
      commandLine("command that prints the source", run.renderCommand(trial)),
    ];
    refill(this.source, head, ...noted, ...(run.sourced.size ? [el("p", { class: "hint" }, why)] : []), ...print);
  }
}
