// Scales: from numbers to pixels and back, and where their ticks are.

/** Powers of ten below the smallest number where a logarithmic axis shows what is 0. */
const BELOW = 1;

class Axis {
  /**
   * @param {number[]} values what it has to show; those it cannot are left out.
   * @param {boolean} log whether equal factors are equally long.
   * @param {number[] | null} zoom the first and last position instead.
   * @param {boolean} whole whether there is nothing between whole numbers.
   */
  constructor(values, log, zoom, whole = false) {
    this.log = log;
    this.leastStep = whole ? 1 : 0;
    const shown = log ? values.filter((value) => value > 0) : values;
    this.hasFloor = log && values.some((value) => value === 0);
    let [low, high] = [Infinity, -Infinity];
    for (const value of shown) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    if (low > high) [low, high] = log ? [0.1, 1] : [0, 1];
    if (this.hasFloor) low = 10 ** (Math.floor(Math.log10(low)) - BELOW);
    this.floor = low;
    const [first, last] = [this.position(low), this.position(high)];
    const margin = 0.05 * (last - first) || (log ? 0.3 : Math.abs(first) * 0.1 || 1);
    [this.first, this.last] = zoom ?? [first - (this.hasFloor ? margin / 2 : margin), last + margin];
    // Times and errors start at 0, and so does an axis that would start near it.
    if (!zoom && !log && first >= 0 && this.first < 0) this.first = 0;
  }

  /** Where a number is, in units of the axis; NaN where it is not on it. */
  position(value) {
    if (!this.log) return value;
    return value > 0 ? Math.log10(value) : value === 0 && this.hasFloor ? Math.log10(this.floor) : NaN;
  }

  /** Give the axis its place on the screen. */
  place(start, end) {
    this.start = start;
    this.scale = (end - start) / (this.last - this.first);
    return this;
  }

  pixel(value) {
    return this.start + (this.position(value) - this.first) * this.scale;
  }

  /** The position at a pixel. */
  at(pixel) {
    return this.first + (pixel - this.start) / this.scale;
  }

  holds(value) {
    const position = this.position(value);
    return position >= this.first && position <= this.last;
  }

  /** About so many numbers for ticks, with their texts. */
  ticks(count) {
    const ticks = this.log ? this.logTicks(count) : linearTicks(this.first, this.last, count, this.leastStep);
    const shown = ticks.map((value) => ({ value, text: number(value, 6) }));
    return this.hasFloor && this.holds(0) ? [{ value: 0, text: "0" }, ...shown.slice(1)] : shown;
  }

  logTicks(count) {
    const [low, high] = [Math.ceil(this.first - 1e-9), Math.floor(this.last + 1e-9)];
    const decades = high - low + 1;
    if (this.last - this.first < 1) return linearTicks(10 ** this.first, 10 ** this.last, count);
    if (decades * 3 <= count + 2) {
      const fine = [];
      for (let power = low - 1; power <= high; power++) {
        fine.push(...[1, 2, 5].map((digit) => Number(`${digit}e${power}`)));
      }
      return fine.filter((value) => this.holds(value));
    }
    const step = Math.max(1, Math.ceil(decades / count));
    const coarse = [];
    for (let power = low; power <= high; power += step) coarse.push(Number(`1e${power}`));
    return coarse;
  }
}

function linearTicks(low, high, count, leastStep = 0) {
  const rough = Math.max(leastStep, (high - low) / Math.max(1, count));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((candidate) => candidate >= rough) ?? 10 * power;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) {
    ticks.push(Number((i * step).toPrecision(12)));
  }
  return ticks;
}
