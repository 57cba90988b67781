// Where the time of an application's runs goes: a bar for each of baseline and best, a part for each kernel.

const HOST = "host, between launches";

/** What was measured of each kernel alone, on data of one of its launches: how much its own parameters and types matter. */
function kernelsAlone(run) {
  const columns = ["kernel alone, at its sizes", "trials", "fastest launch (ms)", "slowest launch (ms)"];
  const row = (each) => el("tr", {}, el("th", { scope: "row" }, each.kernel),
    [each.trials, each.least_ms, each.most_ms].map((value) => el("td", { class: "right" }, number(value))));
  return el("div", { class: "wide" }, el("table", { class: "changes" },
    el("thead", {}, el("tr", {}, columns.map((text, i) => el("th", { scope: "col", class: i ? "right" : null }, text)))),
    el("tbody", {}, run.kernels_alone.map(row))));
}

function drawKernels(element, run) {
  const bars = run.kernel_times;
  element.hidden = !bars.length;
  if (element.hidden) return;
  const total = (bar) => bar.kernels.reduce((sum, each) => sum + each.time_ms, bar.host_ms ?? 0);
  const longest = Math.max(...bars.map(total));
  const names = [...new Set(bars.flatMap((bar) => bar.kernels.map(({ name }) => name)))];
  const look = (place) => (place < 0 ? "host" : `kernel-${place % 6}`);
  const timeOf = (bar, name) => (name === HOST ? bar.host_ms : bar.kernels.find((each) => each.name === name)?.time_ms) ?? null;
  const share = (bar, name) => {
    const time = timeOf(bar, name);
    return time === null || !total(bar) ? NONE : `${Math.round((100 * time) / total(bar))}%`;
  };
  const part = (bar, name) => {
    const time = timeOf(bar, name) ?? 0;
    const piece = el("span", { class: `part ${look(names.indexOf(name))}`,
      title: `${name}: ${number(time)} ms (${share(bar, name)})` });
    piece.style.width = `${(100 * time) / (longest || 1)}%`;
    return piece;
  };
  const stack = (bar) => el("tr", {}, el("th", { scope: "row" }, bar.name),
    el("td", { class: "right" }, `${number(total(bar))} ms`),
    el("td", { class: "track" }, el("div", { class: "stack", role: "img",
      "aria-label": [...names, HOST].map((name) => `${name} ${share(bar, name)}`).join(", ") },
    [...names, HOST].map((name) => part(bar, name)))));
  const launches = (bar, name) => bar.kernels.find((each) => each.name === name)?.launches ?? null;
  const row = (name) => el("tr", {},
    el("th", { scope: "row" }, el("span", { class: `swatch ${look(names.indexOf(name))}`, "aria-hidden": true }), name),
    bars.map((bar) => [number(timeOf(bar, name)), share(bar, name), number(launches(bar, name))]
      .map((text) => el("td", { class: "right" }, text))));
  refill(element,
    el("div", { class: "card-head" }, el("h2", { id: "kernels-title" }, "Time of a run, by kernel"),
      el("span", { class: "hint" }, "What lies between launches is the host's: Python, and what is read, written and copied.")),
    el("table", { class: "bars stacks" }, el("tbody", {}, bars.map(stack))),
    el("div", { class: "wide" }, el("table", { class: "changes" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "kernel"),
        bars.map(({ name }) => [`${name} (ms)`, "share", "launches"]
          .map((text) => el("th", { scope: "col", class: "right" }, text))))),
      el("tbody", {}, [...names, HOST].map(row)))),
    run.kernels_alone.length ? kernelsAlone(run) : null);
}
