// Why the winner has its types: a few sentences, and each type changed alone. It is what the run file holds.

const ratio = (value) => {
  if (value === null) return NONE;
  if (value >= 3) return `${value.toFixed(1)}×`;
  const share = Math.round(100 * (value - 1));
  return `${share < 0 ? "−" : "+"}${Math.abs(share)}%`;
};

function drawExplanation(element, run) {
  const { explanation } = run;
  element.hidden = !explanation.changes.length;
  if (element.hidden) return;
  const of = (change, name) => change.outcome?.[name] ?? null;
  // Of what is minimised, the better is the smaller multiple.
  const growth = (gain) => (gain === null ? NONE : `${number(explanation.minimise ? 1 / gain : gain, 3)}×`);
  const other = explanation.measure === "speed" ? [] : [[explanation.measure, (change) => growth(of(change, "gain"))]];
  const known = (change) => change.outcome !== null && VALID.has(change.outcome.status);
  const digits = (change) => {
    if (!known(change)) return NONE;
    if (change.outcome.digits === null) return change.outcome.exact ? "exact" : NONE;
    const value = change.outcome.digits.toFixed(1).replace("-0.0", "0.0");
    return value.startsWith("-") ? value.replace("-", "−") : `+${value}`;
  };
  // Of several limits, the error that digits are of: the one that comes closest to its own.
  const error = (change) => {
    if (!known(change)) return NONE;
    const { limited } = change.outcome;
    return limited === null ? number(change.outcome.error, 3) : `${limited.measured_by} ${number(limited.error, 3)} (limit ${number(limited.limit, 3)})`;
  };
  const speed = (change) => {
    const between = of(change, "speed_interval");
    return ratio(of(change, "speed")) + (between ? ` (${between.map(ratio).join(" to ")})` : "");
  };
  const why = (change) => [...(change.outcome === null ? ["not measured"] : []), ...change.remarks].join("; ");
  const columns = [
    ["digits", digits, "right"],
    ["speed", speed, "right"],
    ...other.map(([name, text]) => [name, text, "right"]),
    ["error", error, "right"],
    ["feasible", (change) => (change.feasible === null ? NONE : change.feasible ? "yes" : "no")],
    ["remarks", why, "wrap"],
  ];
  // Of an application, the types of buffers and those of each kernel stand together, below a line that says so.
  const isGrouped = explanation.changes.some(({ part }) => part);
  const named = ({ parameter, part, buffers }, before) => {
    const name = part ? parameter.split(".").at(-1) : parameter;
    return buffers.length && parameter !== before?.parameter ? `${name} (${buffers.join(", ")})` : name;
  };
  const head = (part) => el("tr", { class: "part" },
    el("th", { scope: "colgroup", colspan: columns.length + 2 }, part || "choices"));
  const row = (change, before) => el("tr", {
    class: change.parameter === explanation.limiting && change.direction === "restored" ? "limiting" : null },
  el("th", { scope: "row" }, breakable(named(change, before))), el("td", {}, `${change.before} → ${change.after}`),
  columns.map(([, text, look]) => el("td", { class: look ?? null }, text(change))));
  const rows = explanation.changes.flatMap((change, i) => [
    isGrouped && change.part !== explanation.changes[i - 1]?.part ? head(change.part) : null,
    row(change, explanation.changes[i - 1])]);
  refill(element,
    el("div", { class: "card-head" }, el("h2", { id: "explanation-title" }, "Why these types"),
      el("span", { class: "hint" }, "Each type of the winner changed alone; what is missing, mptune explain measures.")),
    el("ul", {}, explanation.sentences.map((sentence) => el("li", {}, sentence))),
    el("div", { class: "wide" }, el("table", { class: "changes" },
      el("thead", {}, el("tr", {}, ["type", "change"].map((name) => el("th", { scope: "col" }, name)),
        columns.map(([name, , look]) => el("th", { scope: "col", class: look === "right" ? look : null }, name)))),
      el("tbody", {}, rows))));
}
