// Elements, numbers and texts. Whatever comes from a run enters the page here, as text nodes and attributes alone.

const SVG = "http://www.w3.org/2000/svg";
const NONE = "–";
const LONG_WORD = 32;

/** Give an element attributes (a function: a listener of that event) and children (a text: a text node). */
function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const el = (tag, attributes = {}, ...children) => furnish(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => furnish(document.createElementNS(SVG, tag), attributes, children);

/** Give an element these children instead of those it has. */
function refill(element, ...children) {
  element.replaceChildren();
  return furnish(element, {}, children);
}

/** A number in short; a dash where there is none. */
function number(value, digits = 4) {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return value.toLocaleString("en-GB");
  if (size < 1e6 && size >= 1e-3) return String(Number(value.toPrecision(digits)));
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  return `${Number(mantissa)}e${Number(exponent)}`;
}

function bytes(value) {
  if (value === null) return NONE;
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, value)) / 3)));
  return `${number(value / 1000 ** power, 3)} ${units[power]}`;
}

function seconds(value) {
  if (value < 100) return `${number(value, 3)} s`;
  const minutes = Math.round(value / 60);
  return minutes < 100 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A count with its noun. */
const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/** A button that puts a text on the clipboard; a page opened from a file may not be allowed to, and selects it. */
function copyButton(what, read) {
  const button = el("button", { type: "button", class: "small", "aria-label": `Copy ${what}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(read());
      button.textContent = "Copied";
    } catch {
      const shown = button.parentElement.querySelector("code");
      if (shown) getSelection().selectAllChildren(shown);
      button.textContent = shown ? "Selected" : "Not allowed";
    }
    announce(`${button.textContent}: ${what}`);
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

/** A command line with a button that copies it. Lines break between words, not after the hyphens of an option. */
function commandLine(what, text) {
  const words = text.split(" ").map((word) => (word.length > LONG_WORD ? word : el("span", { class: "word" }, word)));
  const spaced = words.flatMap((word, i) => (i ? [" ", word] : [word]));
  return el("div", { class: "command" }, el("code", { tabindex: 0, role: "group", "aria-label": what }, spaced),
    copyButton(what, () => text));
}

/** A name that a line may end in only after an underscore or a dot, as long as these parts fit. */
const breakable = (name) => name.split(/(?<=[_.])/).flatMap((part, i) => (i ? [el("wbr"), part] : [part]));

/** Tell those who hear the page. */
function announce(text) {
  document.getElementById("live").textContent = text;
}

/** What a marker looks like in legends and tables, as the plots draw it. */
function glyph(shape, kind, size = 14) {
  const half = size / 2;
  const path = svg("path", { d: OUTLINES[shape](half, half, half * 0.62), class: `mark ${kind}` });
  return svg("svg", { width: size, height: size, viewBox: `0 0 ${size} ${size}`, "aria-hidden": true }, path);
}
