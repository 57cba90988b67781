// What stands around the plots: title, figures, the runs beside one another, failures, and what the run was made with.

function drawHead(element, run, several) {
  const limit = run.limits.map(([measure, each]) => `${measure} ≤ ${number(each)}`).join(", ") || "no threshold";
  const space = run.configurations === null ? counted(run.count, "trial")
    : `${number(run.count)} of ${number(run.configurations)} configurations`;
  const facts = [
    [run.backend, run.device].filter(Boolean).join(" · "),
    [limit, ...run.constraints].join(" and "),
    [run.strategy, run.seed === null ? null : `seed ${run.seed}`].filter(Boolean).join(", "),
    space,
  ];
  refill(element,
    el("p", { class: "brand" }, "mptune report", several ? ` · ${run.label}` : ""),
    el("h1", {}, run.kernel || "a run"),
    el("p", { class: "facts" }, facts.filter(Boolean).map((fact) => el("span", {}, fact))),
    run.command ? commandLine(run.command_is_recorded ? "command that made this run" : "command that does the same",
      run.command) : null,
  );
}

/** The figures on top. */
function drawTiles(element, run) {
  const { best, baseline } = run;
  const shown = best ?? run.closest;
  const of = (name, trial) => (trial === null ? null : run.metric(name, trial));
  const tile = (name, value, note, kind) => el("div", { class: `tile ${kind ?? ""}` },
    el("span", { class: "name" }, name), el("strong", {}, value), el("span", { class: "note" }, note));
  const from = (name, show) => (baseline === null || baseline === shown ? "" : `baseline ${show(of(name, baseline))}`);
  const tiles = [];
  if (best === null) {
    const note = shown === null ? "nothing ran to its end"
      : run.kinds[shown] === FEASIBLE ? "noise hides which; one that may be it is shown" : "closest shown";
    tiles.push(tile("best", "none", note, "bad"));
  } else if (of("speedup", best) !== null) {
    const over = best === baseline ? "the baseline is the best" : "over the baseline, in the widest types";
    // The number stands large, its interval below.
    const [, factor, interval] = run.speedup_text.match(/^([^ x]+)x?(?: \((.*)\))?$/);
    tiles.push(tile("speedup", `${factor}×`, interval ? `${interval}; ${over}` : over, "good"));
  }
  if (run.objective !== "time_ms" && shown !== null) {
    tiles.push(tile(run.objective, number(of(run.objective, shown)), from(run.objective, number)));
  }
  if (shown !== null && of("time_ms", shown) !== null) {
    tiles.push(tile("time", `${number(of("time_ms", shown))} ms`, from("time_ms", (value) => `${number(value)} ms`)));
  }
  if (shown !== null && of("error", shown) !== null) {
    const limit = typeof run.threshold === "number" ? `threshold ${number(run.threshold)}` : run.error_metric;
    tiles.push(tile("error", number(of("error", shown), 3), limit, run.kinds[shown] === FEASIBLE ? "" : "bad"));
  }
  if (shown !== null && of("memory_bytes", shown) !== null) {
    tiles.push(tile("memory", bytes(of("memory_bytes", shown)), from("memory_bytes", bytes)));
  }
  const budget = Math.min(run.budget ?? 0, run.configurations ?? Infinity);
  const planned = run.count < budget ? `, ${number(budget)} planned` : "";
  tiles.push(tile("feasible", number(run.kindCounts[FEASIBLE]), `of ${counted(run.count, "trial")}${planned}`));
  if (run.wall_s > 0) {
    const [most, spent] = Object.entries(run.durations_s).filter(([name]) => name !== "other")[0] ?? [];
    const share = most ? `${Math.round((100 * spent) / run.wall_s)}% ${most}` : "";
    tiles.push(tile("time spent", seconds(run.wall_s), share));
  }
  refill(element, ...tiles);
}

/** What has to be said before anything else. */
function drawNotices(element, run) {
  const notices = [...run.run_warnings];
  if (!run.count) notices.push("This run has no trial yet.");
  else if (run.best === null && run.closest !== null && run.kinds[run.closest] !== FEASIBLE) {
    const why = run.message(run.closest);
    const closest = `The closest is trial ${number(run.closest + 1)}${why ? `: ${why}` : ""}.`;
    notices.push(`No configuration satisfies the limits. ${closest}`);
  } else if (run.best === null && run.closest === null) {
    notices.push("No configuration ran to its end with finite outputs: see the failures below.");
  }
  if (run.count && run.baseline === null && run.best !== null) {
    notices.push("No accurate configuration in the widest types is among the trials, so speedups are not known.");
  }
  if (run.metricNames.length && !hasFront(run)) {
    notices.push(`Of each trial, ${run.metricNames[0]} alone was recorded: there is no front to show.`);
  }
  const verified = Object.entries(run.verified).map(([name, text]) => el("p", { class: "notice good" }, `${name}: ${text}`));
  refill(element, ...notices.map((text) => el("p", { class: "notice" }, text)), ...verified);
}

/** The runs beside one another; the first cell shows or hides one in the plots, its name opens it. */
function drawRuns(element, state) {
  element.hidden = state.runs.length < 2;
  if (element.hidden) return;
  const of = (run, name, trial) => number(trial === null ? null : run.metric(name, trial));
  const identity = [
    ["kernel", (run) => run.kernel],
    ["device", (run) => [run.backend, run.device].filter(Boolean).join(" · ")],
    ["strategy", (run) => `${run.strategy || NONE}${run.seed === null ? "" : `, seed ${run.seed}`}`],
  ];
  // What all have in common stands in the title.
  const differs = ([, text]) => state.runs.some((run) => text(run) !== text(state.runs[0]));
  const columns = [
    ...identity.filter(differs),
    ["trials", (run) => number(run.count), "right"],
    ["feasible", (run) => number(run.kindCounts[FEASIBLE]), "right"],
    ["threshold", (run) => typeof run.threshold === "number" ? number(run.threshold)
      : run.threshold === null ? NONE : Object.values(run.threshold).map((limit) => number(limit)).join(", "), "right"],
    ["baseline (ms)", (run) => of(run, "time_ms", run.baseline), "right"],
    ["best (ms)", (run) => of(run, "time_ms", run.best), "right"],
    ["speedup", (run) => of(run, "speedup", run.best), "right"],
    ["error", (run) => of(run, "error", run.best), "right"],
    ["memory", (run) => bytes(run.best === null ? null : run.metric("memory_bytes", run.best)), "right"],
    ["spent", (run) => (run.wall_s > 0 ? seconds(run.wall_s) : NONE), "right"],
  ];
  const row = (run) => el("tr", { class: run === state.run ? "chosen" : null, "data-run": run.label },
    el("td", {}, el("input", { type: "checkbox", checked: state.visible.has(run) || run === state.run,
      disabled: run === state.run, "aria-label": `Show ${run.label} in the plots`,
      change: ({ target }) => state.reveal(run, target.checked) })),
    el("th", { scope: "row" }, el("button", { type: "button", class: "link", "aria-pressed": String(run === state.run),
      click: () => state.open(run) }, glyph(runShape(run), runColour(run)), run.label)),
    columns.map(([, text, align]) => el("td", { class: align }, text(run))));
  refill(element,
    el("div", { class: "card-head" }, el("h2", {}, counted(state.runs.length, "run")),
      el("span", { class: "hint" }, "Open a run by its name; its check mark shows it in the plots.")),
    el("div", { class: "wide" }, el("table", { class: "runs" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, el("span", { class: "unseen" }, "in the plots")),
        el("th", { scope: "col" }, "run"),
        columns.map(([name, , align]) => el("th", { scope: "col", class: align }, name)))),
      el("tbody", {}, state.runs.map(row)))));
}

function drawFailures(element, state) {
  const { run } = state;
  element.hidden = !run.failures.length;
  if (element.hidden) return;
  const row = (failure) => el("tr", {},
    el("td", { class: "right" }, number(failure.count)),
    el("td", { class: "status" }, glyph("cross", "failed", 13), failure.status),
    el("td", { class: "wrap" }, failure.message || NONE),
    el("td", { class: "wrap mono" }, run.configuration(failure.trial).join(", ")),
    el("td", {}, el("button", { type: "button", class: "small", click: () => {
      state.choose(run, failure.trial);
      document.getElementById("detail").scrollIntoView({ block: "nearest" });
    } }, `trial ${number(failure.trial + 1)}`)));
  const total = run.failures.reduce((sum, failure) => sum + failure.count, 0);
  refill(element,
    el("div", { class: "card-head" }, el("h2", { id: "failures-title" }, "Failures"),
      el("span", { class: "hint" }, `${counted(total, "trial")}; messages that differ in their numbers count as one`)),
    el("div", { class: "wide" }, el("table", { class: "failures" },
      el("thead", {}, el("tr", {}, ["count", "status", "message", "for example", "first"].map((name, i) =>
        el("th", { scope: "col", class: i ? null : "right" }, name)))),
      el("tbody", {}, run.failures.map(row)))));
}

function drawAbout(element, run) {
  const facts = { ...run.facts, "run file": run.file };
  const list = el("dl", {}, Object.entries(facts).filter(([, text]) => text).map(([name, text]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, text))));
  const parts = [el("section", { class: "card", "aria-label": "Made with" }, el("h2", {}, "Made with"), list)];
  const spent = Object.entries(run.durations_s).filter(([, seconds_]) => seconds_ > 0);
  if (run.wall_s > 0 && spent.length) parts.push(spentCard(spent));
  const warnings = run.warnings.values.filter(Boolean);
  if (warnings.length) {
    parts.push(el("section", { class: "card" }, el("h2", {}, "Warnings"), el("ul", {},
      [...new Set(warnings.flatMap((text) => text.split("\n")))].map((text) => el("li", {}, text)))));
  }
  refill(element, ...parts);
}

/** Where the time went: a bar for each, as long as its share. */
function spentCard(spent) {
  const total = spent.reduce((sum, [, each]) => sum + each, 0);
  return el("section", { class: "card", "aria-label": "Time spent" }, el("h2", {}, "Time spent"),
    el("table", { class: "bars" }, el("tbody", {}, spent.map(([name, each]) => {
      const bar = el("span", { class: "bar", "aria-hidden": true });
      bar.style.width = `${Math.max(0.5, (100 * each) / total)}%`;
      return el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "right" }, seconds(each)),
        el("td", { class: "right" }, `${Math.round((100 * each) / total)}%`), el("td", { class: "track" }, bar));
    }))));
}
