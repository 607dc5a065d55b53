// Draws the charts of a page with uPlot, and keeps them up to date. Every value is also in a table of the page.
"use strict";

(() => {
  const HEIGHT = 160;
  const FEWEST = 9; // points
  const COLOURS = ["--accent", "--second", "--third", "--fourth"];
  const colour = (token) => getComputedStyle(document.documentElement).getPropertyValue(token).trim();
  const drawn = new Map(); // by the element with data-charts: its plots

  // As ui/units.py writes them.
  const number = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 1 ? 2 : value < 10 ? 1 : 0 });
  const size = (value) => {
    const power = Math.max(0, Math.min(4, Math.floor(Math.log2(value || 1) / 10)));
    return `${(value / 1024 ** power).toFixed(power ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
  };
  const words = {
    count: number,
    rate: (value) => `${number(value)}/s`,
    size,
    size_rate: (value) => `${size(value)}/s`,
    span: (value) => value < 1 ? `${number(value * 1000)} ms` : `${number(value)} s`,
  };
  const of_two = Array.from({ length: 51 }, (_, power) => 2 ** power);
  // 24 hours, as all other times of the page.
  const shows = (options) => new Intl.DateTimeFormat(undefined, { hourCycle: "h23", ...options });
  const day = shows({ day: "numeric", month: "short" });
  const minute = shows({ hour: "2-digit", minute: "2-digit" });
  const second = shows({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const moment = shows({ day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const times = (_, splits, __, ___, step_s) => splits.map((at_s) => {
    const at = new Date(at_s * 1000);
    const midnight = at.getHours() + at.getMinutes() + at.getSeconds() === 0;
    return (midnight ? day : step_s < 60 ? second : minute).format(at);
  });

  // The values under the pointer, or the newest ones.
  const say = (plot, chart, at, legend) => {
    const index = plot.cursor.idx ?? (chart.lines[0]?.values.length ?? 0) - 1;
    const pointed = plot.cursor.idx != null;
    at.textContent = pointed ? moment.format(new Date(plot.data[0][index] * 1000)) : "";
    legend.replaceChildren(...chart.lines.flatMap(({ name, values }, line) => {
      const value = pointed ? values[index] : values.findLast((one) => one !== null);
      const shown = document.createElement("span");
      shown.className = `name-${line + 1}`;
      shown.textContent = `${name} ${value == null ? "-" : words[chart.unit](value)}`.trim();
      return [shown, " "];
    }));
  };

  const options = (chart, width, said) => {
    const axis = {
      stroke: () => colour("--quiet"),
      font: "12px system-ui",
      grid: { stroke: () => colour("--line"), width: 1 },
      ticks: { show: false },
      gap: 4,
    };
    return {
      width,
      height: HEIGHT,
      padding: [8, 32, 0, 0], // half of the last time
      legend: { show: false },
      cursor: { y: false, sync: { key: "charts" }, points: { size: 7 } },
      scales: { y: { range: (_, __, most) => [0, most > 0 ? most * 1.05 : 1] } },
      axes: [
        { ...axis, gap: 8, size: 28, space: (_, __, min, max) => max - min < 1800 ? 100 : 72, values: times },
        {
          ...axis,
          size: 72,
          space: 28,
          ...(chart.unit.startsWith("size") ? { incrs: of_two } : {}),
          values: (_, splits) => splits.map((value) => words[chart.unit](value)),
        },
      ],
      series: [{}, ...chart.lines.map((_, line) => ({ stroke: () => colour(COLOURS[line]), width: 1.5, points: { size: 4 } }))],
      hooks: { setCursor: [said] },
    };
  };

  const draw = (box, found) => {
    const before = drawn.get(box) ?? [];
    const times_s = found.charts[0]?.lines[0]?.values.map((_, column) => found.first_s + column * found.step_s) ?? [];
    drawn.set(box, found.charts.map((chart, index) => {
      const names = chart.lines.map(({ name }) => name).join("\n");
      const data = [times_s, ...chart.lines.map(({ values }) => values)];
      const old = before[index];
      if (old?.names === names) {
        old.chart = chart;
        const { min, max } = old.plot.scales.x;
        const zoomed = min > old.plot.data[0][0] || max < old.plot.data[0].at(-1);
        old.plot.setData(data, !zoomed);
        old.said();
        return old;
      }
      old?.plot.destroy();
      const figure = box.children[index];
      const [, at, legend] = figure.querySelector("figcaption").children;
      const plot = figure.querySelector(".plot");
      const made = { names, chart, said: () => say(made.plot, made.chart, at, legend) };
      made.plot = new uPlot(options(chart, plot.clientWidth, () => made.plot && made.said()), data, plot);
      made.said();
      return made;
    }));
  };

  // Charts begin with the first sample, so that those of a new appliance can be seen.
  const begun = ({ first_s, step_s, charts }) => {
    const lines = charts.flatMap((chart) => chart.lines);
    const firsts = lines.map(({ values }) => values.findIndex((value) => value !== null)).filter((at) => at >= 0);
    const begin = Math.max(0, Math.min(...firsts, (lines[0]?.values.length ?? 0) - FEWEST));
    for (const line of lines) line.values = line.values.slice(begin);
    return { first_s: first_s + begin * step_s, step_s, charts };
  };

  const update = async (box) => {
    const answer = await fetch(box.dataset.charts, { headers: { "Seb-By-Itself": "1" }, redirect: "error" }).catch(() => null);
    const found = answer?.ok && await answer.json();
    if (found && box.isConnected && box.clientWidth) draw(box, begun(found));
    return found?.step_s;
  };
  const updated = new Map(); // when each was drawn and how long its step is
  const look = async () => {
    for (const [box, plots] of drawn) if (!box.isConnected) {
      for (const { plot } of plots) plot.destroy();
      drawn.delete(box);
    }
    if (document.hidden) return;
    for (const box of document.querySelectorAll("[data-charts]")) {
      const [at, step_s] = updated.get(box) ?? [0, 0];
      if (Date.now() < at + step_s * 1000) continue;
      updated.set(box, [Date.now(), 15]);
      updated.set(box, [Date.now(), await update(box) || 15]);
    }
  };

  const each = (act) => [...drawn.values()].flat().forEach(act);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => each(({ plot }) => plot.redraw(false)));
  addEventListener("resize", () => each(({ plot }) => {
    plot.setSize({ width: plot.root.parentNode.clientWidth, height: HEIGHT });
  }));
  document.addEventListener("htmx:afterSettle", look);
  document.addEventListener("visibilitychange", look);
  setInterval(look, 5000);
  look();
})();
