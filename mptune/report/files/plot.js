// A plot: points on a canvas, which stays fluid with ten thousand of them; axes, lines and what is pointed at in SVG.

/** Outlines of markers, as SVG paths, which a canvas draws too. */
const OUTLINES = {
  circle: (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  triangle: (x, y, r) => `M${x} ${y - 1.1 * r}l${1.15 * r} ${2 * r}h${-2.3 * r}z`,
  square: (x, y, r) => `M${x - 0.9 * r} ${y - 0.9 * r}h${1.8 * r}v${1.8 * r}h${-1.8 * r}z`,
  diamond: (x, y, r) => `M${x} ${y - 1.3 * r}l${1.3 * r} ${1.3 * r}l${-1.3 * r} ${1.3 * r}l${-1.3 * r} ${-1.3 * r}z`,
  cross: (x, y, r) => `M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`,
  wedge: (x, y, r) => `M${x} ${y + 1.1 * r}l${1.15 * r} ${-2 * r}h${-2.3 * r}z`,
  slab: (x, y, r) => `M${x - 1.3 * r} ${y - 0.6 * r}h${2.6 * r}v${1.2 * r}h${-2.6 * r}z`,
  hexagon: (x, y, r) => `M${x - 1.1 * r} ${y}l${0.55 * r} ${-r}h${1.1 * r}l${0.55 * r} ${r}l${-0.55 * r} ${r}h${-1.1 * r}z`,
  star: (x, y, r) =>
    `M${[...Array(10).keys()]
      .map((i) => [(i % 2 ? 0.62 : 1.45) * r, (i * Math.PI) / 5])
      .map(([size, angle]) => `${(x + size * Math.sin(angle)).toFixed(2)} ${(y - size * Math.cos(angle)).toFixed(2)}`)
      .join("L")}z`,
};
const LINES_ONLY = new Set(["cross"]);
const CELL = 24;
/** Of many points, each lets those below it show: opacity goes with the root of their number. */
const DENSITY = 35;
const FAINTEST = 0.2;
const DIMMED = 0.12;
const REACH = { mouse: 16, touch: 28 };
const DRAG = 6;
const DIGIT_WIDTH = 7;
/** What stands beside the points that have no number. */
const FAILED_ROW = "failed";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

class Plot {
  /**
   * @param {HTMLElement} host where it goes.
   * @param {(point) => string[]} describe what is said of a point, a line each.
   * @param {(point) => void} choose told about a point that was chosen.
   */
  constructor(host, describe, choose) {
    Object.assign(this, { host, describe, choose, zoom: null, pointed: null, drag: null, scene: null });
    this.back = svg("svg", { class: "layer", "aria-hidden": true });
    this.canvas = el("canvas", { class: "layer", "aria-hidden": true });
    this.front = svg("svg", { class: "layer", "aria-hidden": true });
    this.tip = el("div", { class: "tip", hidden: true });
    this.reset = el("button", { type: "button", class: "small reset", hidden: true, click: () => this.unzoom() },
      "Reset zoom");
    this.surface = el("div", { class: "surface", tabindex: 0, role: "application" },
      this.back, this.canvas, this.front, this.tip);
    host.append(this.surface, this.reset);
    const listeners = {
      pointermove: (event) => this.move(event),
      pointerleave: (event) => this.leave(event),
      pointerdown: (event) => this.press(event),
      pointerup: (event) => this.release(event),
      pointercancel: () => this.cancel(),
      keydown: (event) => this.key(event),
      blur: () => this.point(null),
      dblclick: () => this.unzoom(),
    };
    for (const [name, listener] of Object.entries(listeners)) this.surface.addEventListener(name, listener);
    new ResizeObserver(() => this.scene && this.draw()).observe(this.surface);
  }

  /** Show a scene: axes, points, paths, rules (lines at a value) and a title for those who hear it. */
  show(scene, keepZoom = false) {
    this.scene = scene;
    if (!keepZoom) this.zoom = null;
    this.surface.setAttribute("aria-label", scene.title);
    this.draw();
  }

  /** Show another trial as the chosen one. */
  mark(selected) {
    if (!this.scene || !this.box) return;
    this.scene.selected = selected;
    this.drawFront();
  }

  draw() {
    this.width = this.surface.clientWidth;
    this.height = this.surface.clientHeight;
    if (!this.width || !this.height) return;
    this.layOut();
    this.place();
    this.drawBack();
    this.drawPoints();
    this.drawFront();
    this.reset.hidden = !this.zoom;
  }

  layOut() {
    const { x, y, points, rules } = this.scene;
    const at = (axis) => [...points.map((p) => p[axis]), ...rules.filter((r) => r.axis === axis).map((r) => r.value)]
      .filter((value) => value !== null);
    const hasFailed = points.some((point) => point.y === null);
    const top = hasFailed ? 30 : 14;
    this.y = new Axis(at("y"), y.log, this.zoom?.y);
    this.y.place(this.height - 46, top);
    this.yTicks = at("y").length ? this.y.ticks(Math.max(3, Math.floor(this.height / 60))) : [];
    const texts = [...this.yTicks.map((tick) => tick.text), hasFailed ? FAILED_ROW : ""];
    const left = 26 + DIGIT_WIDTH * Math.max(2, ...texts.map((text) => text.length));
    this.x = new Axis(at("x"), x.log, this.zoom?.x, x.whole).place(left, this.width - 16);
    this.xTicks = this.x.ticks(Math.max(4, Math.floor((this.width - left) / 90)));
    this.box = { left, right: this.width - 16, top, bottom: this.height - 46 };
  }

  /** Find where the points are, and which are near which. */
  place() {
    this.placed = [];
    this.cells = new Map();
    const { left, right, top, bottom } = this.box;
    for (const point of this.scene.points) {
      const [px, py] = [this.x.pixel(point.x), point.y === null ? top - 13 : this.y.pixel(point.y)];
      if (!(px >= left - 1 && px <= right + 1 && (point.y === null || (py >= top - 1 && py <= bottom + 1)))) continue;
      const placed = { ...point, px, py };
      this.placed.push(placed);
      const cell = `${Math.floor(px / CELL)},${Math.floor(py / CELL)}`;
      if (!this.cells.has(cell)) this.cells.set(cell, []);
      this.cells.get(cell).push(placed);
    }
    this.placed.sort((a, b) => a.dim === b.dim ? a.rank - b.rank : b.dim - a.dim);
    this.inOrder = this.placed.filter((point) => !point.dim).sort((a, b) => a.px - b.px || a.py - b.py);
  }

  drawBack() {
    const { left, right, top, bottom } = this.box;
    const grid = [];
    for (const tick of this.xTicks) {
      const px = this.x.pixel(tick.value);
      grid.push(svg("line", { x1: px, x2: px, y1: top, y2: bottom, class: "grid" }));
      grid.push(svg("text", { x: px, y: bottom + 18, class: "tick", "text-anchor": "middle" }, tick.text));
    }
    for (const tick of this.yTicks) {
      const py = this.y.pixel(tick.value);
      grid.push(svg("line", { x1: left, x2: right, y1: py, y2: py, class: "grid" }));
      grid.push(svg("text", { x: left - 8, y: py + 4, class: "tick", "text-anchor": "end" }, tick.text));
    }
    for (const rule of this.scene.rules.filter((r) => r.beyond)) grid.push(this.beyond(rule));
    const turned = `translate(14 ${(top + bottom) / 2}) rotate(-90)`;
    grid.push(
      svg("path", { d: `M${left} ${top}V${bottom}H${right}`, class: "frame" }),
      svg("text", { x: (left + right) / 2, y: this.height - 6, class: "name", "text-anchor": "middle" },
        this.scene.x.label),
      svg("text", { transform: turned, class: "name", "text-anchor": "middle" }, this.scene.y.label),
    );
    if (top > 20) grid.push(svg("text", { x: left - 8, y: top - 9, class: "tick", "text-anchor": "end" }, FAILED_ROW));
    this.back.replaceChildren(...grid);
  }

  /** The area behind a limit. */
  beyond(rule) {
    const { left, right, top, bottom } = this.box;
    const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
    if (rule.axis === "y") {
      const py = clamp(this.y.pixel(rule.value), top, bottom);
      return svg("rect", { x: left, y: top, width: right - left, height: py - top, class: "beyond" });
    }
    const px = clamp(this.x.pixel(rule.value), left, right);
    return svg("rect", { x: px, y: top, width: right - px, height: bottom - top, class: "beyond" });
  }

  drawPoints() {
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: this.width * ratio, height: this.height * ratio });
    const context = this.canvas.getContext("2d");
    const density = Math.min(1, Math.max(FAINTEST, DENSITY / Math.sqrt(this.placed.length)));
    const stamps = new Map();
    // Points that look alike are stamps of one picture: a hundred thousand of them take no longer than their page does.
    for (const point of this.placed) {
      const opacity = point.dim ? DIMMED : point.rank < RANK.front ? density : 1;
      const look = `${point.shape} ${point.colour} ${point.size} ${point.hollow} ${opacity}`;
      if (!stamps.has(look)) stamps.set(look, stampOf(point, opacity, ratio));
      const stamp = stamps.get(look);
      const half = stamp.width / 2;
      context.drawImage(stamp, Math.round(point.px * ratio - half), Math.round(point.py * ratio - half));
    }
  }

  drawFront() {
    const { left, right, top, bottom } = this.box;
    const parts = this.scene.paths.map((path) => svg("path", { d: this.pathOf(path), class: `line ${path.kind}` }));
    parts.forEach((part, i) => part.style.setProperty("stroke", `var(--${this.scene.paths[i].colour})`));
    for (const rule of this.scene.rules) {
      const axis = this[rule.axis];
      if (!axis.holds(rule.value)) continue;
      const at = axis.pixel(rule.value);
      const isY = rule.axis === "y";
      const path = isY ? `M${left} ${at}H${right}` : `M${at} ${top}V${bottom}`;
      parts.push(svg("path", { d: path, class: `rule ${rule.kind}` }));
      const place = isY ? { x: right - 4, y: at - 5 > top + 8 ? at - 5 : at + 14 } : { x: at - 5, y: top + 12 };
      parts.push(svg("text", { ...place, class: `rule-name ${rule.kind}`, "text-anchor": "end" }, rule.text));
    }
    const chosen = this.placed.find((point) => this.isSelected(point));
    if (chosen) parts.push(svg("circle", { cx: chosen.px, cy: chosen.py, r: chosen.size + 5, class: "chosen" }));
    this.halo = svg("circle", { r: 0, class: "halo" });
    this.band = svg("rect", { class: "band", width: 0, height: 0 });
    const clip = svg("clipPath", { id: `${this.host.id}-clip` },
      svg("rect", { x: left, y: top - 26, width: right - left + 12, height: bottom - top + 34 }));
    const clipped = svg("g", { "clip-path": `url(#${this.host.id}-clip)` }, parts);
    this.front.replaceChildren(clip, clipped, this.halo, this.band);
  }

  isSelected({ run, trial }) {
    return run === this.scene.selected.run && trial === this.scene.selected.trial;
  }

  /** A staircase: what one point attains holds until the next. */
  pathOf({ points }) {
    const pixels = points.map(([x, y]) => [this.x.pixel(x).toFixed(1), this.y.pixel(y).toFixed(1)]);
    return pixels.map(([px, py], i) => (i === 0 ? `M${px} ${py}` : `H${px}V${py}`)).join("");
  }

  // -- pointing ------------------------------------------------------------------------------------------------------

  /** The point nearest to a place, null where none is within reach. */
  nearest(px, py, reach) {
    let [best, least] = [null, reach * reach];
    const [column, row, span] = [Math.floor(px / CELL), Math.floor(py / CELL), Math.ceil(reach / CELL)];
    for (let i = column - span; i <= column + span; i++) {
      for (let j = row - span; j <= row + span; j++) {
        for (const point of this.cells.get(`${i},${j}`) ?? []) {
          // Of points on one another, the one drawn last is seen.
          const far = (point.px - px) ** 2 + (point.py - py) ** 2 - point.rank * 1e-3 + (point.dim ? 64 : 0);
          if (far < least) [best, least] = [point, far];
        }
      }
    }
    return best;
  }

  under(event) {
    const bounds = this.surface.getBoundingClientRect();
    return [event.clientX - bounds.left, event.clientY - bounds.top];
  }

  move(event) {
    const [px, py] = this.under(event);
    const moved = this.start && Math.hypot(px - this.start[0], py - this.start[1]) > DRAG;
    if (event.pointerType === "mouse" && (this.drag || moved)) return this.stretch(px, py);
    if (event.pointerType === "mouse") this.point(this.nearest(px, py, REACH.mouse));
  }

  leave(event) {
    // A finger leaves with every tap.
    if (event.pointerType === "mouse" && !this.drag) this.point(null);
  }

  /** Show what a point is. */
  point(point) {
    if (point === this.pointed || !this.halo) return;
    this.pointed = point;
    this.tip.hidden = !point;
    this.surface.classList.toggle("pointing", Boolean(point));
    this.halo.setAttribute("r", point ? point.size + 4 : 0);
    if (!point) return;
    this.halo.setAttribute("cx", point.px);
    this.halo.setAttribute("cy", point.py);
    const [title, ...lines] = this.describe(point);
    this.tip.replaceChildren(el("strong", {}, title), ...lines.map((line) => el("span", {}, line)));
    this.placeTip(point);
  }

  /** Put the text beside the point or, where it is too wide for that, above or below it. */
  placeTip({ px, py }) {
    const [width, height] = [this.tip.offsetWidth, this.tip.offsetHeight];
    const within = (value, size, all) => Math.max(4, Math.min(all - size - 4, value));
    const [onRight, onLeft] = [px + 14 + width < this.width, px - 14 - width > 0];
    const [left, top] = onRight ? [px + 14, py - height / 2]
      : onLeft ? [px - 14 - width, py - height / 2]
        : [px - width / 2, py + 16 + height < this.height ? py + 16 : py - 16 - height];
    this.tip.style.left = `${within(left, width, this.width)}px`;
    this.tip.style.top = `${within(top, height, this.height)}px`;
  }

  press(event) {
    const [px, py] = this.under(event);
    if (event.button !== 0) return;
    this.start = [px, py];
    if (event.pointerType === "mouse") this.surface.setPointerCapture(event.pointerId);
  }

  stretch(px, py) {
    const [x0, y0] = this.start;
    const inside = (value, low, high) => Math.min(high, Math.max(low, value));
    const [x, y] = [inside(px, this.box.left, this.box.right), inside(py, this.box.top, this.box.bottom)];
    this.drag = [Math.min(x0, x), Math.min(y0, y), Math.max(x0, x), Math.max(y0, y)];
    const [left, top, right, bottom] = this.drag;
    for (const [name, value] of Object.entries({ x: left, y: top, width: right - left, height: bottom - top })) {
      this.band.setAttribute(name, value);
    }
  }

  release(event) {
    const [px, py] = this.under(event);
    const { drag, start } = this;
    this.cancel();
    if (drag && drag[2] - drag[0] > DRAG && drag[3] - drag[1] > DRAG) return this.zoomTo(drag);
    if (!start) return;
    const point = this.nearest(px, py, event.pointerType === "mouse" ? REACH.mouse : REACH.touch);
    this.point(point);
    if (point) this.choose(point);
  }

  cancel() {
    this.drag = null;
    this.start = null;
    this.band?.setAttribute("width", 0);
  }

  zoomTo([left, top, right, bottom]) {
    this.zoom = { x: [this.x.at(left), this.x.at(right)], y: [this.y.at(bottom), this.y.at(top)] };
    this.pointed = null;
    this.tip.hidden = true;
    this.draw();
  }

  unzoom() {
    if (!this.zoom) return;
    this.zoom = null;
    this.draw();
    this.surface.focus();
  }

  // -- keys ----------------------------------------------------------------------------------------------------------

  key(event) {
    const points = this.inOrder ?? [];
    const page = Math.max(1, Math.round(points.length / 20));
    const steps = { ArrowRight: 1, ArrowLeft: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps && points.length) {
      const pointed = points.indexOf(this.pointed);
      const at = pointed >= 0 ? pointed : points.findIndex((point) => this.isSelected(point));
      const next = Math.max(0, Math.min(points.length - 1, at + steps[event.key]));
      this.point(points[next]);
      announce(this.describe(points[next]).join(", "));
    } else if ((event.key === "Enter" || event.key === " ") && this.pointed) {
      this.choose(this.pointed);
    } else if (event.key === "Escape") {
      this.point(null);
      this.unzoom();
    } else {
      return;
    }
    event.preventDefault();
  }
}

/** The picture of a point. */
function stampOf({ shape, colour: name, size, hollow }, opacity, ratio) {
  const half = Math.ceil((1.6 * size + 2) * ratio);
  const stamp = Object.assign(document.createElement("canvas"), { width: 2 * half, height: 2 * half });
  const context = stamp.getContext("2d");
  const [shade, ground, isLine] = [colour(name), colour("card"), LINES_ONLY.has(shape)];
  context.scale(ratio, ratio);
  context.globalAlpha = opacity;
  context.lineJoin = "round";
  context.lineWidth = isLine || hollow ? 1.6 : 1;
  context.strokeStyle = isLine || hollow ? shade : ground;
  context.fillStyle = hollow ? ground : shade;
  const path = new Path2D(OUTLINES[shape](half / ratio, half / ratio, size));
  if (!isLine) context.fill(path);
  // The rims that keep neighbours apart would hide a crowd.
  if (isLine || hollow || opacity === 1) context.stroke(path);
  return stamp;
}
