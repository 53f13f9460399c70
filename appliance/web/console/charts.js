// Small curves of the last five minutes. uPlot draws; colours come from the style sheet.

import { Component, html } from "../markup.js";

const HEIGHT_PX = 150;
const SPAN_S = 300;

// Each curve: what it is called, where its figure is in a point, which colour of the theme it has.
export const RATE = {
  title: "Records a second",
  unit: "",
  digits: 0,
  series: [
    { name: "committed", of: (point) => point.records_per_s, colour: "--accent", fill: true },
  ],
};
export const LATENCY = {
  title: "Latency: acknowledgement, durable write",
  unit: " ms",
  digits: 2,
  series: [
    { name: "ack p99", of: (point) => inMs(point.ack_p99_us), colour: "--curve-3" },
    { name: "ack p50", of: (point) => inMs(point.ack_p50_us), colour: "--curve-2" },
    { name: "write p99", of: (point) => inMs(point.write_p99_us), colour: "--curve-1" },
    { name: "write p50", of: (point) => inMs(point.write_p50_us), colour: "--accent" },
  ],
};

const inMs = (us) => (us === null || us === 0 ? null : us / 1000);

function said(value, chart) {
  if (value === null || value === undefined) return "–";
  const digits = value >= 100 ? 0 : value >= 10 ? Math.min(1, chart.digits) : chart.digits;
  const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return value.toLocaleString(undefined, options) + chart.unit;
}

function columns(points, series) {
  return [points.map((point) => point.at / 1000), ...series.map((curve) => points.map(curve.of))];
}

export class Chart extends Component {
  componentDidMount() {
    this.theme = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.draw();
    this.theme.addEventListener("change", this.redraw);
    this.resize = new ResizeObserver(() => {
      this.plot?.setSize({ width: this.box.clientWidth, height: HEIGHT_PX });
    });
    this.draw();
    this.resize.observe(this.box);
  }

  componentWillUnmount() {
    this.theme.removeEventListener("change", this.redraw);
    this.resize.disconnect();
    this.plot.destroy();
  }

  componentDidUpdate() {
    this.plot.setData(columns(this.props.points, this.props.chart.series));
  }

  draw() {
    this.plot?.destroy();
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const { chart, points } = this.props;
    const axis = {
      stroke: colour("--faint"),
      font: `11px ${colour("--text")}`,
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { show: false },
    };
    const now = () => (this.props.points.at(-1)?.at ?? Date.now()) / 1000;
    this.plot = new window.uPlot(
      {
        width: this.box.clientWidth,
        height: HEIGHT_PX,
        padding: [8, 4, 0, 0],
        legend: { show: false },
        cursor: { show: false },
        scales: {
          x: { range: () => [now() - SPAN_S, now()] },
          y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.15 : 1] },
        },
        axes: [
          { ...axis, space: 70, size: 26, values: "{HH}:{mm}" },
          { ...axis, space: 32, size: 52, values: (_plot, ticks) => ticks.map(this.tick) },
        ],
        series: [
          {},
          ...chart.series.map((curve) => ({
            stroke: colour(curve.colour),
            width: 1.5,
            fill: curve.fill ? colour("--accent-wash") : undefined,
            points: { show: false },
          })),
        ],
      },
      columns(points, chart.series),
      this.box,
    );
  }

  tick(value) {
    return value >= 10000 ? `${value / 1000}k` : String(Math.round(value * 1000) / 1000);
  }

  render({ chart, points }) {
    const last = points.at(-1);
    return html`<figure class="chart">
      <figcaption><h2>${chart.title}</h2>
        <ul>${chart.series.map(
          (curve) => html`<li key=${curve.name}><i class=${`swatch${curve.colour}`} />${curve.name}
            <b>${said(last && curve.of(last), chart)}</b></li>`,
        )}</ul></figcaption>
      <div class="plot" ref=${(box) => { this.box = box; }} />
    </figure>`;
  }
}
