// The filter: words, each of which a trial's status, message or a value has to contain, and comparisons.

const COMPARISON = /^(?:"([^"]+)"|([^\s<>=!~"]+))\s*(<=|>=|!=|==|=|<|>|~)\s*(?:"([^"]*)"|([^\s<>=!~"]+))/;
const WORD = /^(?:"([^"]*)"|(\S+))/;
const ORDER = {
  "<": (a, b) => a < b,
  ">": (a, b) => a > b,
  "<=": (a, b) => a <= b,
  ">=": (a, b) => a >= b,
};

/** A filter that cannot be read; its message says what was expected. */
class FilterError extends Error {}

/** Return what tells whether a trial passes. Throws FilterError. */
function parseFilter(text, run) {
  const tests = [];
  let rest = text.trim();
  while (rest) {
    const comparison = COMPARISON.exec(rest);
    const found = comparison ?? WORD.exec(rest) ?? [rest, rest];
    if (comparison) {
      tests.push(comparisonTest(run, found[1] ?? found[2], found[3], found[4] ?? found[5]));
    } else if (!/^(and|&&?)$/i.test(found[0])) {
      tests.push(wordTest(run, found[1] ?? found[2]));
    }
    rest = rest.slice(found[0].length).trim();
  }
  return (trial) => tests.every((test) => test(trial));
}

function wordTest(run, word) {
  if (/^[<>=!~"]+|[<>=!~"]+$/.test(word)) throw new FilterError(`“${word}” is not whole: write name < value`);
  const wanted = word.toLowerCase();
  const texts = [
    [run.statuses.codes, run.statuses.values],
    [run.messages.codes, run.messages.values],
    ...run.parameters.map((parameter) => [parameter.cells.codes, parameter.texts]),
  ];
  // Distinct texts are looked at once, not once for each trial.
  const hits = texts.map(([codes, values]) => [codes, values.map((value) => value.toLowerCase().includes(wanted))]);
  return (trial) => hits.some(([codes, contains]) => contains[codes[trial]]);
}

function comparisonTest(run, name, operator, value) {
  const column = columnNamed(run, name);
  if (operator === "~") {
    const wanted = value.toLowerCase();
    return (trial) => column.text(trial).toLowerCase().includes(wanted);
  }
  if (!column.numeric) return choiceTest(column, operator, value);
  const limit = Number(value);
  if (value === "" || Number.isNaN(limit)) {
    throw new FilterError(`${column.name} is a number and cannot be compared with “${value}”`);
  }
  if (operator === "!=") return (trial) => column.key(trial) !== limit;
  if (!(operator in ORDER)) return (trial) => column.key(trial) === limit;
  return (trial) => column.key(trial) !== null && ORDER[operator](column.key(trial), limit);
}

function choiceTest(column, operator, value) {
  if (operator in ORDER) throw new FilterError(`${column.name} has no order: write ${column.name}=${value}`);
  const equal = column.texts.map((text) => text.toLowerCase() === value.toLowerCase());
  return (trial) => equal[column.cells.codes[trial]] === (operator !== "!=");
}

function columnNamed(run, name) {
  const wanted = name.toLowerCase();
  const found = run.columns.find((c) => c.name === name) ?? run.columns.find((c) => c.name.toLowerCase() === wanted);
  if (found) return found;
  const names = run.columns.map((column) => column.name);
  const near = names.map((known) => [distance(known.toLowerCase(), wanted), known]).sort((a, b) => a[0] - b[0])[0];
  const hint = near && near[0] <= Math.max(2, wanted.length / 2) ? `; did you mean ${near[1]}?` : "";
  throw new FilterError(`there is no column “${name}”${hint}`);
}

/** Letters to insert, leave out or replace to get from one word to another. */
function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length];
}
