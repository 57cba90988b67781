// What is chosen, and who is told when that changes.

class State {
  constructor(report) {
    this.runs = report.runs.map((run, index) => new Run(run, index));
    this.run = this.runs[0];
    this.visible = new Set(this.runs);
    this.text = "";
    this.passes = null;
    this.problem = null;
    const at = (id) => document.getElementById(id);
    this.pareto = new ParetoChart(at("pareto"), this);
    this.progress = new ProgressChart(at("progress"), this);
    this.detail = new Detail(at("detail"), at("source"), this);
    this.table = new TrialTable(at("trials"), this);
    at("foot").append(`Written by mptune ${report.version}. This file holds everything it shows and loads nothing.`);
    this.open(this.run);
  }

  /** The runs in the plots, the open one in front of the others. */
  shown() {
    return [...this.runs.filter((run) => this.visible.has(run) && run !== this.run), this.run];
  }

  /** Look at another run. */
  open(run) {
    const at = (id) => document.getElementById(id);
    this.run = run;
    drawHead(at("head"), run, this.runs.length > 1);
    drawTiles(at("tiles"), run);
    drawNotices(at("notices"), run);
    drawKernels(at("kernels"), run);
    drawExplanation(at("explanation"), run);
    drawFailures(at("failures"), this);
    drawAbout(at("about"), run);
    this.table.show();
    this.filter(this.text);
    this.detail.update();
  }

  /** Show a run in the plots beside the open one, or no longer. */
  reveal(run, visible) {
    if (visible) this.visible.add(run);
    else this.visible.delete(run);
    this.drawPlots();
  }

  /** Choose a trial, of the open run or another one in the plots. */
  choose(run, trial) {
    run.selected = trial;
    if (run !== this.run) this.open(run);
    const selected = { run, trial };
    this.pareto.plot.mark(selected);
    this.progress.plot.mark(selected);
    this.detail.update();
    this.table.reveal();
    announce(`Trial ${trial + 1}: ${run.described(trial)}`);
  }

  /** Filter the trials; one that cannot be read leaves them as they are. */
  filter(text) {
    this.text = text;
    this.problem = null;
    try {
      const test = text.trim() ? parseFilter(text, this.run) : null;
      this.passes = test && Uint8Array.from({ length: this.run.count }, (_, trial) => (test(trial) ? 1 : 0));
    } catch (error) {
      if (!(error instanceof FilterError)) throw error;
      this.problem = error.message;
      if (this.passes?.length !== this.run.count) this.passes = null;
    }
    this.table.update();
    this.drawPlots(true);
  }

  drawPlots(keepZoom = false) {
    drawRuns(document.getElementById("runs"), this);
    this.pareto.update(keepZoom);
    this.progress.update(keepZoom);
  }
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const wear = (isDark) => (document.documentElement.dataset.theme = isDark ? "dark" : "light");
wear(dark.matches);
const state = new State(JSON.parse(document.getElementById("data").textContent));
dark.addEventListener("change", () => {
  wear(dark.matches);
  state.drawPlots(true);
});
// Paper is white.
addEventListener("beforeprint", () => {
  wear(false);
  state.table.print(true);
  state.drawPlots(true);
});
addEventListener("afterprint", () => {
  wear(dark.matches);
  state.table.print(false);
  state.drawPlots(true);
});
document.documentElement.dataset.ready = "true";
