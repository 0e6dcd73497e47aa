"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const read = (id) => { const block = byId(id); return block ? JSON.parse(block.textContent) : null; };

  /* ---- copy the verdict ---- */
  const copy = byId("copy"), markdown = read("markdown");
  if (copy && markdown !== null) {
    copy.hidden = false;
    copy.addEventListener("click", async () => {
      let done = false;
      try { await navigator.clipboard.writeText(markdown); done = true; } catch { done = copyOldWay(markdown); }
      copy.textContent = done ? "Copied" : "Copying is not allowed here";
      setTimeout(() => { copy.textContent = "Copy as Markdown"; }, 1600);
    });
  }
  function copyOldWay(text) {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    let done = false;
    try { done = document.execCommand("copy"); } catch { done = false; }
    area.remove();
    copy.focus();
    return done;
  }

  /* ---- dots: one stop for Tab, arrow keys between them ---- */
  const tip = byId("tip");
  function showTip(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(6, Math.min(x + 14, innerWidth - box.width - 6))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(6, y - box.height - 12) : y + 18}px`;
  }
  const hideTip = () => { tip.hidden = true; };
  for (const group of document.querySelectorAll(".dots")) {
    const dots = [...group.querySelectorAll(".dot")];
    const told = new Map(dots.map((dot) => {
      const title = dot.querySelector("title"), text = title.textContent.split("; ").join("\n");
      title.remove();
      return [dot, text];
    }));
    const show = (dot) => { const box = dot.getBoundingClientRect(); showTip(told.get(dot), box.right, box.top); };
    group.addEventListener("pointerover", (event) => { const dot = event.target.closest(".dot"); if (dot) show(dot); });
    group.addEventListener("pointerout", hideTip);
    group.addEventListener("focusin", (event) => show(event.target.closest(".dot")));
    group.addEventListener("focusout", hideTip);
    group.addEventListener("keydown", (event) => {
      const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
      const at = dots.indexOf(event.target.closest(".dot"));
      let next = event.key in moves ? at + moves[event.key] : event.key === "Home" ? 0 : event.key === "End" ? dots.length - 1 : -1;
      if (event.key === "Escape") hideTip();
      if (at < 0 || next < 0 || next >= dots.length) return;
      event.preventDefault();
      dots[at].tabIndex = -1;
      dots[next].tabIndex = 0;
      dots[next].focus();
    });
  }

  /* ---- tables that sort ---- */
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const isNumber = head.classList.contains("number"), was = head.getAttribute("aria-sort");
      const direction = was ? (was === "descending" ? 1 : -1) : isNumber ? -1 : 1;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      const rows = [...body.rows].map((row) => [key(row.cells[column], isNumber), row]);
      rows.sort(([a], [b]) => (a === null ? 1 : b === null ? -1 : direction * (isNumber ? a - b : a.localeCompare(b))));
      body.append(...rows.map(([, row]) => row));
    }));
  }
  function key(cell, isNumber) {
    if (!isNumber) return cell.textContent;
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  }

  /* ---- times, as findwall writes them everywhere ---- */
  function formatMs(value) {
    const size = Math.abs(value);
    if (size >= 10000) return `${(value / 1000).toFixed(size < 100000 ? 1 : 0)} s`;
    if (size >= 100) return `${value.toFixed(0)} ms`;
    if (size >= 10) return `${value.toFixed(1)} ms`;
    if (size >= 1) return `${value.toFixed(2)} ms`;
    return size >= 0.0005 ? `${(value * 1000).toFixed(0)} us` : "0 ms";
  }

  /* ---- the timeline ---- */
  const data = read("step-events"), canvas = byId("events");
  if (data && canvas) unpack(data).then((columns) => drawTimeline(data, columns), (error) => {
    byId("at-cursor").textContent = `This browser cannot unpack the timeline (${error}).`;
  });

  async function unpack(given) {
    const packed = Uint8Array.from(atob(given.columns), (sign) => sign.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const raw = await new Response(stream).arrayBuffer(), count = given.count;
    const column = (at) => new Uint32Array(raw, 4 * count * at, count);
    return { start: column(0).slice(), length: column(1), name: column(2), cause: new Uint8Array(raw, 12 * count, count) };
  }

  function drawTimeline(given, { start, length, name, cause }) {
    const AXIS = 22, LABEL = 17, ROW = { host: 13, device: 22, idle: 18 }, toMs = given.unit / 1e6;
    const context = canvas.getContext("2d", { alpha: false });
    const reach = new Uint32Array(given.count);  // the latest end so far in a lane: grows, so it can be searched
    const lanes = [], heads = [];
    let from = 0, y = AXIS, track = -1;
    for (const [ofTrack, depth, count] of given.lanes) {
      const [label, side] = given.tracks[ofTrack];
      if (ofTrack !== track) { heads.push({ label, side, y }); y += LABEL; track = ofTrack; }
      let before = 0, latest = 0;
      for (let at = from; at < from + count; at++) {
        before = start[at] += before;
        reach[at] = latest = Math.max(latest, before + length[at]);
      }
      lanes.push({ from, to: from + count, y, height: ROW[side], side, depth });
      from += count;
      y += ROW[side];
    }
    const height = y + 8;
    canvas.style.height = `${height}px`;

    let first = 0, last = given.span, width = 0, scheduled = false, colours = null, chosen = -1, wanted = null, hits = [], hit = -1;
    const home = () => [Math.max(0, given.step[0] - 0.02 * (given.step[1] - given.step[0])), given.span];
    [first, last] = home();

    function readColours() {
      const style = getComputedStyle(document.documentElement), take = (what) => style.getPropertyValue(`--${what}`).trim();
      colours = {
        paper: take("paper"), ink: take("ink"), soft: take("soft"), line: take("line"), raised: take("raised"), found: take("found"),
        host: [take("host"), take("host-deep")],
        cause: given.causes.map(([what, wall]) => (what === "profiler" ? take("profiler") : take(wall))),
      };
    }
    function schedule() {
      if (scheduled) return;
      scheduled = true;
      requestAnimationFrame(() => { scheduled = false; draw(); });
    }
    function fit() {
      width = canvas.clientWidth;
      const scale = Math.min(devicePixelRatio || 1, 2);
      canvas.width = Math.max(1, Math.round(width * scale));
      canvas.height = Math.round(height * scale);
      context.setTransform(scale, 0, 0, scale, 0, 0);
      schedule();
    }
    function firstAfter(lane, time) {  // the first event of a lane that ends after a moment
      let low = lane.from, high = lane.to;
      while (low < high) { const middle = (low + high) >> 1; if (reach[middle] <= time) low = middle + 1; else high = middle; }
      return low;
    }

    function draw() {
      const perUnit = width / (last - first);
      context.fillStyle = colours.paper;
      context.fillRect(0, 0, width, height);
      drawAxis(perUnit);
      context.textBaseline = "middle";
      for (const lane of lanes) drawLane(lane, perUnit);
      context.font = "600 11px system-ui, sans-serif";
      for (const head of heads) {
        context.fillStyle = colours.soft;
        context.fillText(head.label, 5, head.y + LABEL / 2 + 1);
      }
      if (chosen >= 0) frame(chosen, perUnit);
    }
    function drawAxis(perUnit) {
      const span = (last - first) * toMs, rough = span / Math.max(2, width / 110), size = 10 ** Math.floor(Math.log10(rough));
      const gap = [1, 2, 5, 10].map((times) => times * size).find((one) => one >= rough) || rough;
      const origin = given.step[0];
      context.fillStyle = colours.raised;
      context.fillRect(0, 0, width, AXIS - 4);
      const a = (given.step[0] - first) * perUnit, b = (given.step[1] - first) * perUnit;
      context.fillStyle = colours.line;
      context.fillRect(a, 0, Math.max(1, b - a), AXIS - 4);
      context.font = "11px system-ui, sans-serif";
      context.textBaseline = "middle";
      for (let at = Math.ceil(((first - origin) * toMs) / gap) * gap; at <= (last - origin) * toMs; at += gap) {
        const x = (at / toMs + origin - first) * perUnit;
        context.fillStyle = colours.line;
        context.fillRect(Math.round(x), AXIS - 4, 1, height);
        context.fillStyle = colours.ink;
        context.fillText(tick(at, gap), x + 3, (AXIS - 4) / 2 + 1);
      }
    }
    function tick(at, gap) {
      if (Math.abs(at) < gap / 2) return "0";
      if (gap < 1) return gap < 0.001 ? `${(at * 1e6).toFixed(0)} ns` : `${(at * 1000).toFixed(0)} us`;
      return `${at.toFixed(0)} ms`;
    }
    function drawLane(lane, perUnit) {
      let drawnTo = -1, colour = null;
      const tall = lane.height - 2, isHost = lane.side === "host", neutral = colours.host[lane.depth & 1];
      const labels = lane.height >= 13;
      context.font = "10.5px system-ui, sans-serif";
      for (let at = firstAfter(lane, first); at < lane.to && start[at] < last; at++) {
        const from = (start[at] - first) * perUnit;
        let to = from + length[at] * perUnit;
        const isWanted = wanted !== null && wanted[name[at]] === 1;
        if (to <= drawnTo && !isWanted) continue;
        const left = Math.max(from, -2), right = Math.max(Math.min(to, width + 2), left + 0.75);
        const next = isWanted ? colours.found : isHost ? neutral : colours.cause[cause[at]];
        if (next !== colour) context.fillStyle = colour = next;
        context.globalAlpha = wanted !== null && !isWanted ? 0.35 : 1;
        const shown = right - left > 3 ? right - left - 0.6 : right - left;
        context.fillRect(left, lane.y, shown, tall);
        drawnTo = Math.max(drawnTo, Math.floor(right) + (right - left < 1 ? 0.5 : 0));
        if (labels && shown > 34) {
          const text = given.names[name[at]], most = Math.floor((shown - 6) / 5.6);
          context.fillStyle = isHost && !isWanted ? colours.ink : colours.paper;
          if (lane.side === "idle" && given.causes[cause[at]][0] === "profiler") context.fillStyle = colours.soft;
          context.fillText(text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text, left + 4, lane.y + tall / 2 + 0.5);
          colour = null;
        }
      }
      context.globalAlpha = 1;
    }
    function laneOf(at) { return lanes.find((lane) => at >= lane.from && at < lane.to); }
    function frame(at, perUnit) {
      const lane = laneOf(at), x = (start[at] - first) * perUnit;
      context.strokeStyle = colours.ink;
      context.lineWidth = 2;
      context.strokeRect(x - 1, lane.y - 1, Math.max(3, length[at] * perUnit + 1), lane.height);
    }

    /* moving */
    function look(from, to) {
      const least = Math.max(20 / given.unit, 20), span = Math.min(Math.max(to - from, least), given.span);
      first = Math.min(Math.max(0, (from + to - span) / 2), given.span - span);
      last = first + span;
      schedule();
    }
    function zoom(factor, around) {
      const at = first + (around === undefined ? 0.5 : around) * (last - first);
      const share = (at - first) / (last - first), span = (last - first) * factor;
      look(at - share * span, at + (1 - share) * span);
    }
    const pan = (share) => { const by = share * (last - first), span = last - first; const to = Math.min(Math.max(0, first + by), given.span - span); first = to; last = to + span; schedule(); };
    function choose(at, centre) {
      chosen = at;
      if (at < 0) { schedule(); return; }
      const lane = laneOf(at), what = given.causes[cause[at]][0], side = given.tracks[given.lanes[lanes.indexOf(lane)][0]][0];
      const because = lane.side === "device" ? `\ncounts for ${what}` : "";
      byId("at-cursor").textContent = `${given.names[name[at]]}\n${formatMs(length[at] * toMs)}, ${formatMs((start[at] - given.step[0]) * toMs)} into the step, ${side}${because}`;
      if (centre && (start[at] < first || start[at] + length[at] > last || length[at] < (last - first) / 400)) {
        const span = Math.max(length[at] * 6, (last - first) / 400 > length[at] ? length[at] * 60 : last - first);
        look(start[at] + length[at] / 2 - span / 2, start[at] + length[at] / 2 + span / 2);
      }
      const box = canvas.parentElement;
      if (centre && (lane.y < box.scrollTop || lane.y + lane.height > box.scrollTop + box.clientHeight)) box.scrollTop = lane.y - 60;
      schedule();
    }
    function eventAt(x, y) {
      const lane = lanes.find((one) => y >= one.y && y < one.y + one.height);
      if (!lane) return -1;
      const slack = 2 * (last - first) / width, time = first + (x / width) * (last - first);
      for (let at = firstAfter(lane, time - slack); at < lane.to && start[at] <= time + slack; at++) {
        if (start[at] + length[at] >= time - slack) return at;
      }
      return -1;
    }
    const pointers = new Map();
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); pointers.set(event.pointerId, event.offsetX); });
    canvas.addEventListener("pointermove", (event) => {
      if (!pointers.has(event.pointerId)) {
        const at = eventAt(event.offsetX, event.offsetY);
        if (at !== chosen && at >= 0) choose(at, false);
        return;
      }
      const before = pointers.get(event.pointerId);
      if (pointers.size === 1) pan((before - event.offsetX) / width);
      else {
        const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
        const was = Math.abs(before - other), is = Math.abs(event.offsetX - other);
        if (was > 4 && is > 4) zoom(was / is, other / width);
      }
      pointers.set(event.pointerId, event.offsetX);
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => {
      pointers.delete(event.pointerId);
      if (name === "pointerup") { const at = eventAt(event.offsetX, event.offsetY); if (at >= 0) choose(at, false); }
    });
    canvas.addEventListener("wheel", (event) => {
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); pan(event.deltaX / width); return; }
      if (!event.ctrlKey && document.activeElement !== canvas) return;  // else the page scrolls, as a person expects
      event.preventDefault();
      zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.004), event.offsetX / width);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const far = event.shiftKey ? 0.5 : 0.1;
      const lane = chosen >= 0 ? laneOf(chosen) : lanes[0];
      const acts = {
        ArrowLeft: () => pan(-far), ArrowRight: () => pan(far),
        "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), "0": () => look(...home()), Home: () => look(...home()),
        n: () => choose(chosen < 0 ? firstAfter(lane, first) : Math.min(chosen + 1, lane.to - 1), true),
        p: () => choose(chosen < 0 ? lane.from : Math.max(chosen - 1, lane.from), true),
        ArrowDown: () => nextLane(lane, 1), ArrowUp: () => nextLane(lane, -1), Enter: () => nextHit(), Escape: () => choose(-1),
      };
      const act = acts[event.key];
      if (act) { event.preventDefault(); act(); }
    });
    function nextLane(lane, by) {
      const time = chosen >= 0 ? start[chosen] : first, next = lanes[lanes.indexOf(lane) + (chosen >= 0 ? by : 0)];
      if (next) choose(Math.min(firstAfter(next, time), next.to - 1), true);
    }

    /* searching */
    const find = byId("find"), found = byId("found");
    find.addEventListener("input", () => {
      const text = find.value.trim().toLowerCase();
      hits = [];
      hit = -1;
      wanted = null;
      if (text) {
        wanted = Uint8Array.from(given.names, (one) => (one.toLowerCase().includes(text) ? 1 : 0));
        let total = 0;
        for (let at = 0; at < given.count; at++) if (wanted[name[at]]) { hits.push(at); total += length[at]; }
        found.textContent = hits.length ? `${hits.length.toLocaleString("en")} found, ${formatMs(total * toMs)} in all` : "nothing found";
      } else found.textContent = "";
      schedule();
    });
    function nextHit() {
      if (!hits.length) return;
      hit = (hit + 1) % hits.length;
      choose(hits[hit], true);
    }
    find.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); nextHit(); } });
    for (const button of document.querySelectorAll(".tools button")) {
      const acts = { in: () => zoom(0.5), out: () => zoom(2), all: () => look(...home()) };
      button.addEventListener("click", acts[button.dataset.do]);
    }

    readColours();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); schedule(); });
    new ResizeObserver(fit).observe(canvas);
    fit();
  }
})();
