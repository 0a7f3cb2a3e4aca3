/* SPDX-License-Identifier: Apache-2.0 */
/* page.js - draws a report from the JSON beside it. Plain JavaScript; graphs are laid out by dagre where that is there. */
'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const program = data.program, kernels = data.kernels || {}, threads = Math.max(1, data.threads || 1);
  const root = document.getElementById('page');

  // ---- small helpers ----
  const make = (tag, attributes, ...children) => {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attributes || {}))
      k.startsWith('on') ? e.addEventListener(k.slice(2), v) : e.setAttribute(k, v);
    e.append(...children.filter((c) => c !== null && c !== undefined));
    return e;
  };
  const escape = (s) => String(s).replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);
  const known = (v) => v !== null && v !== undefined && !Number.isNaN(v);
  const digits = (v, n = 3) => (!known(v) ? '–' : v === 0 ? '0' : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString('en') : Number(v.toPrecision(n)).toString());
  const mega = (bytes) => (!known(bytes) ? '–' : bytes >= 1e6 ? `${digits(bytes / 1e6)} MB` : `${digits(bytes / 1e3)} kB`);
  const shape = (dims) => (dims ? dims.join('×') || 'scalar' : '');
  const svg = (width, height, inside, extra = '') =>
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ${extra}>${inside}</svg>`;
  const section = (title, ...children) => root.append(make('h2', {}, title), ...children);

  // ---- steps with their times ----
  const layers = program.steps.map((s) => {
    const k = kernels[s.position], us = k ? k.us * k.runs : null;
    const names = (s.nodes || []).map((n) => n.name || `#${n.index} ${n.op}`);
    const floor = known(s.floor_us) ? s.floor_us / threads : null;
    const wrong = (s.nodes || []).map((n) => (data.quantised || {})[n.name.slice(0, 40)]).find((q) => q);
    return { ...s, us, first: k ? k.first_us : null, names, label: names[0] || s.ops, floor, of: us && floor ? floor / us : null, error: wrong ? parseFloat(wrong.error) : null };
  });
  const total = layers.reduce((sum, l) => sum + (l.us || 0), 0);
  for (const l of layers)
    l.share = known(l.us) && total ? l.us / total : null;
  const byPosition = new Map(layers.map((l) => [l.position, l]));
  const timed = total > 0;

  // ---- what is selected, in every view ----
  const watchers = [];
  const select = (position) => watchers.forEach((w) => w(position));

  // ---- overview ----
  const card = (value, what) => make('div', { class: 'card' }, make('b', {}, value), make('span', {}, what));
  const overview = () => {
    const theme = make('button', { onclick: () => {
      const dark = document.documentElement.classList.contains('dark') ||
        (!document.documentElement.classList.contains('light') && matchMedia('(prefers-color-scheme: dark)').matches);
      document.documentElement.classList.remove('dark', 'light');
      document.documentElement.classList.add(dark ? 'light' : 'dark');
    } }, 'dark / light');
    root.append(make('header', {}, make('h1', {}, data.model.file), make('span', { class: 'soft' }, `cytoc ${data.version}, ${data.date}, ${data.cpu}`),
      make('span', { class: 'room' }), theme));
    const cards = make('div', { class: 'cards', id: 'cards' }), run = data.run;
    if (run) {
      cards.append(card(`${digits(run.median_ms)} ms`, `a run, median of ${run.runs}, ${threads} thread${threads > 1 ? 's' : ''}`),
        card(`${digits(run.samples_per_second)}`, 'samples a second'), card(`${digits(run.first_ms)} ms`, 'first run, cold'),
        card(`${digits(run.p99_ms)} ms`, '99 % of runs take less'));
      if (data.eager_ms)
        cards.append(card(`${digits(data.eager_ms / run.median_ms)}×`, 'as fast as every op by itself (-O0)'));
      if (data.ort)
        cards.append(card(`${digits(data.ort.ms / data.ort.our_ms)}×`, `as fast as ONNX Runtime ${data.ort.version}, ${digits(data.ort.ms)} ms`));
    }
    cards.append(card(mega(data.library_bytes), 'library'), card(mega(program.weights_bytes), 'weights'), card(mega(program.arena_bytes), 'memory of a run (arena)'));
    root.append(cards);
    if (data.not_run)
      root.append(make('div', { class: 'note', id: 'notrun' }, `No times: the model could not run here. ${data.not_run}`));
    for (const n of data.notes)
      root.append(make('div', { class: 'note' }, n));
    const facts = [['target', program.target], ['options', data.options.join(' ') || 'none'], ['inputs', data.inputs]];
    const sizes = Object.entries(program.sizes).map(([k, v]) => `${k}=${v}`).join(', ');
    if (sizes)
      facts.push(['sizes left open, here', sizes]);
    if (data.source)
      facts.push(['model', `${data.source.graph.nodes.length} nodes, ${data.source.producer ? `${data.source.producer}, ` : ''}opset ${Object.entries(data.source.opset).map(([k, v]) => `${k} ${v}`).join(', ')}`]);
    facts.push(['computed as', `${layers.length} steps, ${digits(layers.reduce((s, l) => s + (l.flops || 0), 0) / 1e9)} GFLOP`]);
    root.append(make('table', {}, ...facts.map(([k, v]) => make('tr', {}, make('td', { class: 'soft' }, k), make('td', {}, String(v))))));
    if (data.accuracy)
      section(`Accuracy, against ${data.accuracy.against}`, make('table', { id: 'accuracy' }, ...data.accuracy.rows.map((r) =>
        make('tr', {}, make('td', {}, r.output), make('td', {}, r.snr === null ? 'equal' : `${digits(r.snr)} dB`),
          make('td', { class: 'soft' }, `largest difference ${digits(r.largest)}, ${r.elements} elements`)))));
  };

  const advice = () => {
    const list = data.advice || [];
    section('Advice', list.length ? make('ul', { class: 'advice', id: 'advice' }, ...list.map((a) =>
      make('li', { 'data-kind': a.kind, onclick: () => a.steps.length && select(a.steps[0]) },
        ...a.text.split('`').map((part, i) => (i % 2 ? make('code', {}, part) : part)))))
      : make('p', { class: 'soft', id: 'advice' }, timed ? 'Nothing stands out.' : 'Advice needs times.'));
  };

  // ---- graphs ----
  const heat = (x) => `hsl(${Math.round(210 - 200 * Math.min(1, Math.max(0, x)))} 75% ${Math.round(82 - 22 * Math.min(1, Math.max(0, x)))}%)`;
  const most = Math.max(1e-9, ...layers.map((l) => l.share || 0));
  const colours = {
    time: (l) => (known(l.share) ? heat(Math.sqrt(l.share / most)) : null),
    floor: (l) => (known(l.of) ? `hsl(${Math.round(120 * Math.min(1, l.of))} 60% 70%)` : null),
    none: () => null,
  };

  const computedGraph = () => {
    const writer = new Map(), nodes = [], edges = [];
    const ports = { input: [], output: [] };
    for (const b of program.buffers)
      if (b.kind in ports) {
        nodes.push({ key: `b${b.id}`, lines: [b.name], plain: true, details: { [b.kind]: b.name, bytes: mega(b.bytes) } });
        if (b.kind === 'input')
          writer.set(b.id, `b${b.id}`);
      }
    for (const l of layers) {
      nodes.push({ key: `s${l.position}`, layer: l, lines: [l.label, l.nodes && l.nodes.length > 1 ? l.ops : l.algorithm], details: detailsOf(l) });
      for (const r of new Set(l.reads))
        if (writer.has(r))
          edges.push([writer.get(r), `s${l.position}`]);
      for (const w of l.writes)
        writer.set(w, `s${l.position}`);
    }
    for (const b of program.buffers)
      if (b.kind === 'output' && writer.has(b.id))
        edges.push([writer.get(b.id), `b${b.id}`]);
    return { nodes, edges };
  };

  const detailsOf = (l) => ({
    nodes: l.names.join(', '), ops: l.ops, kernel: l.kernel, algorithm: l.algorithm, why: l.why || '', shape: shape(l.shape), 'element type': l.dtype || '',
    layout: l.layout || '', time: known(l.us) ? `${digits(l.us)} µs, ${digits(100 * l.share)} %` : '', 'first run': known(l.first) ? `${digits(l.first)} µs` : '',
    floor: known(l.floor) ? `${digits(l.floor)} µs by ${l.by_bytes ? 'bytes' : 'arithmetic'}${known(l.of) ? `, ${digits(100 * l.of)} % of the time` : ''}` : '',
    arithmetic: l.flops ? `${digits(l.flops / 1e6)} MFLOP` : '', 'reads, writes': known(l.read_bytes) ? `${mega(l.read_bytes)}, ${mega(l.write_bytes)}` : '',
    'alive in the arena': mega(l.alive), 'error when quantised': known(l.error) ? `${l.error} %` : '',
  });

  const sourceGraph = () => {
    const g = data.source.graph, made = new Map(), nodes = [], edges = [];
    const stepOf = new Map();
    for (const l of layers)
      for (const n of l.nodes || [])
        if (n.graph === g.name) // nodes of branches and functions have numbers of their own
          stepOf.set(n.index, l);
    const about = (name) => g.tensors[name] || g.weights[name];
    const text = (name) => (about(name) ? `${name} ${about(name)[0]} ${shape(about(name)[1])}` : name);
    for (const name of g.inputs) {
      nodes.push({ key: `i:${name}`, lines: [name], plain: true, details: { input: text(name) } });
      made.set(name, `i:${name}`);
    }
    g.nodes.forEach((n, i) => n.out.forEach((o) => made.set(o, `n${i}`)));
    g.nodes.forEach((n, i) => {
      if (n.op === 'Constant') { // as little as a weight is
        n.out.forEach((o) => made.delete(o));
        return;
      }
      const l = stepOf.get(i), attributes = Object.entries(n.attributes).map(([k, v]) => `${k}=${Array.isArray(v) ? `[${v}]` : v}`).join(', ');
      nodes.push({ key: `n${i}`, layer: l, lines: [n.op, n.name], details: { op: n.op, name: n.name, attributes, inputs: n.in.map(text).join('; '), outputs: n.out.map(text).join('; '),
        'computed in': l ? `${l.label} (${l.kernel})` : 'nothing of its own: folded, or a view', algorithm: l ? l.algorithm : '', 'time of that': l && known(l.us) ? `${digits(l.us)} µs` : '' } });
      for (const x of new Set(n.in))
        if (made.has(x) && !(x in g.weights))
          edges.push([made.get(x), `n${i}`]);
    });
    for (const name of g.outputs) {
      nodes.push({ key: `o:${name}`, lines: [name], plain: true, details: { output: text(name) } });
      if (made.has(name))
        edges.push([made.get(name), `o:${name}`]);
    }
    return { nodes, edges };
  };

  const lay = (graph) => {
    const ids = new Map(graph.nodes.map((n, i) => [n.key, i]));
    const placed = graph.nodes.map((n, i) => {
      n.lines = n.lines.filter((t) => t).map((t) => (t.length > 34 ? `${t.slice(0, 32)}…` : t));
      return { v: String(i), width: Math.max(60, ...n.lines.map((t) => t.length * 6.6 + 16)), height: 14 * n.lines.length + 10 };
    });
    const pairs = new Set(graph.edges.filter(([a, b]) => a !== b).map(([a, b]) => `${ids.get(a)}:${ids.get(b)}`));
    const lines = [...pairs].map((p) => ({ v: p.split(':')[0], w: p.split(':')[1], minlen: 1, weight: 1, width: 0, height: 0, labeloffset: 10, labelpos: 'r' }));
    const layout = { nodesep: 20, ranksep: 26 };
    if (placed.length > 1500)
      layout.ranker = 'longest-path';
    dagre.layout(placed, lines, layout, {});
    graph.nodes.forEach((n, i) => Object.assign(n, { x: placed[i].x, y: placed[i].y, w: placed[i].width, h: placed[i].height }));
    graph.lines = lines.map((l) => l.points);
    return graph;
  };

  const graphs = () => {
    const box = make('div', { id: 'graph' }), details = make('div', { id: 'details' }, make('span', { class: 'soft' }, 'Click a box.'));
    if (typeof dagre === 'undefined') {
      section('Graph', make('p', { class: 'soft' }, 'The library that lays graphs out was not there.'));
      return;
    }
    let current = null, colour = timed ? 'time' : 'none', view = null;
    const made = {};
    const frame = () => { const s = box.querySelector('svg'); if (s) s.setAttribute('viewBox', view.join(' ')); };
    const bounds = (g) => [Math.min(...g.nodes.map((n) => n.x - n.w / 2)) - 20, Math.min(...g.nodes.map((n) => n.y - n.h / 2)) - 20,
      Math.max(...g.nodes.map((n) => n.x + n.w / 2)) + 20, Math.max(...g.nodes.map((n) => n.y + n.h / 2)) + 20];
    const size = () => [box.clientWidth || 900, box.clientHeight || 600];
    const fit = (whole) => {
      const [x0, y0, x1, y1] = bounds(current), [w, h] = size();
      const scale = whole ? Math.max((x1 - x0) / w, (y1 - y0) / h) : Math.max(1, Math.min((x1 - x0) / w, 3));
      view = [(x0 + x1 - scale * w) / 2, whole ? (y0 + y1 - scale * h) / 2 : y0, scale * w, scale * h];
      frame();
    };
    const zoom = (factor, at) => {
      const [w, h] = size(), [px, py] = at || [w / 2, h / 2];
      const x = view[0] + view[2] * px / w, y = view[1] + view[3] * py / h;
      view = [x - (x - view[0]) * factor, y - (y - view[1]) * factor, view[2] * factor, view[3] * factor];
      frame();
    };
    const show = (n) => {
      box.querySelectorAll('.n.on').forEach((e) => e.classList.remove('on'));
      if (!n)
        return;
      box.querySelector(`[data-key="${CSS.escape(n.key)}"]`).classList.add('on');
      details.replaceChildren(make('b', {}, n.lines[0] || ''), make('table', {}, ...Object.entries(n.details).filter(([, v]) => v).map(([k, v]) =>
        make('tr', {}, make('td', { class: 'soft' }, k), make('td', {}, String(v))))));
    };
    const centre = (n) => { view = [n.x - view[2] / 2, n.y - view[3] / 2, view[2], view[3]]; frame(); };
    const paint = () => current.nodes.forEach((n) => {
      const c = n.layer && colours[colour](n.layer), e = box.querySelector(`[data-key="${CSS.escape(n.key)}"]`);
      e.classList.toggle('plain', !c);
      e.querySelector('rect').style.fill = c || '';
    });
    const draw = (name) => {
      const start = performance.now();
      current = made[name] || (made[name] = lay(name === 'computed' ? computedGraph() : sourceGraph()));
      const parts = current.lines.map((points) => `<path d="M${points.map((p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`).join('L')}"/>`);
      for (const n of current.nodes)
        parts.push(`<g class="n" data-key="${escape(n.key)}"><title>${escape(n.lines.join('\n'))}</title><rect x="${(n.x - n.w / 2).toFixed(1)}" y="${(n.y - n.h / 2).toFixed(1)}" width="${n.w.toFixed(1)}" height="${n.h}" rx="5"/>` +
          n.lines.map((t, i) => `<text x="${n.x.toFixed(1)}" y="${(n.y - n.h / 2 + 17 + 14 * i).toFixed(1)}">${escape(t)}</text>`).join('') + '</g>');
      box.innerHTML = svg(100, 100, parts.join(''));
      const s = box.querySelector('svg');
      s.removeAttribute('width');
      s.removeAttribute('height');
      fit(false);
      paint();
      box.getBoundingClientRect(); // has it laid out now
      box.dataset.ms = (performance.now() - start).toFixed(0);
      box.dataset.graph = name;
      box.dataset.nodes = current.nodes.length;
      tabs.forEach((t) => t.classList.toggle('on', t.dataset.graph === name));
    };
    const byKey = (key) => current.nodes.find((n) => n.key === key);
    let drag = null, moved = false;
    box.addEventListener('pointerdown', (e) => { drag = [e.clientX, e.clientY, ...view]; moved = false; });
    window.addEventListener('pointerup', () => { drag = null; });
    box.addEventListener('pointermove', (e) => {
      if (!drag)
        return;
      const [w, h] = size();
      moved = moved || Math.hypot(e.clientX - drag[0], e.clientY - drag[1]) > 4;
      view = [drag[2] - (e.clientX - drag[0]) * drag[4] / w, drag[3] - (e.clientY - drag[1]) * drag[5] / h, drag[4], drag[5]];
      frame();
    });
    box.addEventListener('wheel', (e) => {
      e.preventDefault();
      const r = box.getBoundingClientRect();
      zoom(e.deltaY > 0 ? 1.15 : 1 / 1.15, [e.clientX - r.left, e.clientY - r.top]);
    }, { passive: false });
    box.addEventListener('click', (e) => {
      const g = e.target.closest && e.target.closest('.n');
      const n = g && !moved && byKey(g.dataset.key);
      if (n) {
        if (n.layer)
          select(n.layer.position);
        show(n);
      }
    });
    const search = make('input', { type: 'search', placeholder: 'find a node', id: 'search', oninput: () => {
      const text = search.value.toLowerCase();
      const hit = (n) => Object.values(n.details).some((v) => String(v).toLowerCase().includes(text));
      let first = null;
      current.nodes.forEach((n) => {
        const yes = !text || hit(n);
        first = first || (text && yes ? n : null);
        box.querySelector(`[data-key="${CSS.escape(n.key)}"]`).classList.toggle('faint', !yes);
      });
      if (first)
        centre(first);
    } });
    const tabs = [['computed', 'as it is computed'], ['source', 'as it came']].filter(([k]) => k === 'computed' || data.source).map(([k, text]) =>
      make('button', { 'data-graph': k, onclick: () => { search.value = ''; draw(k); } }, text));
    const chosen = make('select', { id: 'colour', onchange: () => { colour = chosen.value; paint(); } },
      ...[['time', 'colour: time'], ['floor', 'colour: distance from the floor'], ['none', 'no colour']].map(([v, t]) => make('option', { value: v }, t)));
    chosen.value = colour;
    section('Graph', make('div', { class: 'tools' }, ...tabs, chosen, search, make('button', { onclick: () => zoom(1 / 1.4) }, '+'), make('button', { onclick: () => zoom(1.4) }, '−'),
      make('button', { onclick: () => fit(true) }, 'all of it')), make('div', { id: 'graphbox' }, box, details));
    watchers.push((position) => {
      const n = current && current.nodes.find((x) => x.layer && x.layer.position === position);
      if (n) {
        show(n);
        centre(n);
      }
    });
    draw('computed');
  };

  // ---- table ----
  const columns = [
    ['#', (l) => l.position], ['layer', (l) => l.names.join(', ') || l.ops], ['ops', (l) => l.ops], ['shape', (l) => shape(l.shape)], ['layout', (l) => l.layout || ''],
    ['time µs', (l) => l.us], ['share %', (l) => (known(l.share) ? 100 * l.share : null)], ['floor µs', (l) => l.floor], ['of floor %', (l) => (known(l.of) ? 100 * l.of : null)],
    ['first µs', (l) => l.first], ['MFLOP', (l) => (known(l.flops) ? l.flops / 1e6 : null)], ['MB', (l) => (known(l.read_bytes) ? (l.read_bytes + l.write_bytes) / 1e6 : null)],
    ['algorithm', (l) => l.algorithm], ['why', (l) => l.why || ''],
  ];
  if (layers.some((l) => known(l.error)))
    columns.push(['error %', (l) => l.error]);
  const table = () => {
    const body = make('tbody', {});
    const number = (i) => layers.some((l) => typeof columns[i][1](l) === 'number');
    const row = (l) => make('tr', { 'data-position': l.position, onclick: () => select(l.position) }, ...columns.map(([title, get], i) => {
      const v = get(l), td = make('td', number(i) ? { class: 'num' } : {}, number(i) ? digits(v) : String(v ?? ''));
      if (title === 'share %' && known(v)) {
        td.classList.add('share');
        td.style.setProperty('--w', `${v.toFixed(1)}%`);
      }
      return td;
    }));
    const rows = layers.map(row);
    body.append(...rows);
    let sorted = [-1, 1];
    const heads = columns.map(([title], i) => make('th', { class: number(i) ? 'num' : '', onclick: () => {
      sorted = [i, sorted[0] === i ? -sorted[1] : number(i) && i ? -1 : 1];
      const get = columns[i][1], order = layers.map((l, k) => [get(l), k]);
      const compare = (a, b) => (number(i) ? (known(a) ? a : -Infinity) - (known(b) ? b : -Infinity) : String(a ?? '').localeCompare(String(b ?? '')));
      order.sort((a, b) => sorted[1] * compare(a[0], b[0]) || a[1] - b[1]);
      body.append(...order.map(([, k]) => rows[k]));
      heads.forEach((h, k) => { h.classList.toggle('up', k === i && sorted[1] > 0); h.classList.toggle('down', k === i && sorted[1] < 0); });
    } }, title));
    const csv = () => [columns.map((c) => c[0]), ...layers.map((l) => columns.map((c) => c[1](l) ?? ''))]
      .map((r) => r.map((v) => (/[",\n]/.test(String(v)) ? `"${String(v).replace(/"/g, '""')}"` : String(v))).join(',')).join('\n');
    const copy = make('button', { id: 'csv', onclick: () => {
      const area = make('textarea', {});
      area.value = csv();
      document.body.append(area);
      area.select();
      const done = document.execCommand('copy');
      area.remove();
      copy.textContent = done ? 'copied' : 'cannot copy here';
      copy.dataset.csv = csv();
    } }, 'copy as CSV');
    section('Layers', make('div', { class: 'tools' }, copy, make('span', { class: 'soft' }, 'a click on a heading sorts')),
      make('div', { class: 'tablebox' }, make('table', { class: 'layers', id: 'layers' }, make('thead', {}, make('tr', {}, ...heads)), body)));
    watchers.push((position) => rows.forEach((r) => {
      const on = r.dataset.position === String(position);
      r.classList.toggle('on', on);
      if (on) {
        const frame = r.closest('.tablebox');
        frame.scrollTop = r.offsetTop - frame.clientHeight / 2;
      }
    }));
  };

  const plot = (id, html) => {
    const box = make('div', { class: 'plot', id });
    box.innerHTML = html;
    box.addEventListener('click', (e) => {
      const at = e.target.dataset && e.target.dataset.position;
      if (at)
        select(Number(at));
    });
    watchers.push((position) => box.querySelectorAll('[data-position]').forEach((e) => e.classList.toggle('on', e.dataset.position === String(position))));
    return box;
  };

  // ---- roofline ----
  const roofline = () => {
    const points = layers.filter((l) => l.us > 0 && l.flops > 0 && l.read_bytes + l.write_bytes > 0)
      .map((l) => ({ l, x: l.flops / (l.read_bytes + l.write_bytes), y: l.flops / l.us / 1e3 }));
    if (!points.length || !(program.flops_per_cycle > 0))
      return;
    const width = 900, height = 380, left = 60, bottom = 40, hz = program.clock_hz * threads / 1e9;
    const peak = program.flops_per_cycle * hz, [cached, memory] = program.bytes_per_cycle.map((b) => b * hz);
    const xs = points.map((p) => Math.log10(p.x)), ys = points.map((p) => Math.log10(p.y));
    const x0 = Math.floor(Math.min(-1, ...xs)), x1 = Math.ceil(Math.max(2, ...xs)), y1 = Math.ceil(Math.log10(peak) + 0.1), y0 = Math.min(y1 - 3, Math.floor(Math.min(...ys)));
    const px = (v) => left + (v - x0) / (x1 - x0) * (width - left - 10), py = (v) => height - bottom - (v - y0) / (y1 - y0) * (height - bottom - 10);
    const out = [];
    for (let d = x0; d <= x1; d++)
      out.push(`<line class="axis" x1="${px(d)}" x2="${px(d)}" y1="10" y2="${height - bottom}"/><text x="${px(d) - 8}" y="${height - bottom + 16}">${10 ** d}</text>`);
    for (let d = y0; d <= y1; d++)
      out.push(`<line class="axis" x1="${left}" x2="${width - 10}" y1="${py(d)}" y2="${py(d)}"/><text x="8" y="${py(d) + 4}">${10 ** d}</text>`);
    const roof = (bandwidth, name) => {
      const at = [];
      for (let d = x0; d <= x1 + 1e-9; d += 0.05)
        at.push(`${px(d).toFixed(1)},${py(Math.max(y0, Math.log10(Math.min(peak, bandwidth * 10 ** d)))).toFixed(1)}`);
      out.push(`<polyline class="roof" points="${at.join(' ')}"/><text x="${px(x0) + 6}" y="${py(Math.max(y0, Math.log10(bandwidth * 10 ** x0))) - 6}">${name}, ${digits(bandwidth)} GB/s</text>`);
    };
    roof(cached, program.device ? 'memory' : 'caches');
    if (memory !== cached)
      roof(memory, 'memory');
    out.push(`<text x="${width - 190}" y="${py(Math.log10(peak)) - 5}">${digits(peak)} GFLOP/s</text><text x="${width / 2 - 40}" y="${height - 6}">FLOP a byte</text><text x="${left + 6}" y="22">GFLOP/s</text>`);
    for (const p of points)
      out.push(`<circle class="dot" data-position="${p.l.position}" cx="${px(Math.log10(p.x)).toFixed(1)}" cy="${py(Math.max(y0, Math.log10(p.y))).toFixed(1)}" r="${(3 + 14 * Math.sqrt(p.l.share)).toFixed(1)}"><title>${escape(`${p.l.label}: ${digits(p.y)} GFLOP/s, ${digits(p.x)} FLOP a byte, ${digits(100 * p.l.share)} % of the time`)}</title></circle>`);
    section('Roofline', plot('roofline', svg(width, height, out.join(''))), make('p', { class: 'soft' },
      'A circle is as large as its share of the time. Winograd\u2019s and Strassen\u2019s algorithms take fewer multiplications than are counted here, integers more at a time: both may lie above the roof.'));
  };

  // ---- timeline ----
  const timeline = () => {
    const t = data.timeline;
    if (!t || !t.lanes.length)
      return;
    const box = make('div', {});
    const draw = (scale) => {
      const width = 1350 * scale, out = [];
      t.lanes.forEach((lane, i) => {
        out.push(`<text x="4" y="${34 + 44 * i - 14}">${escape(lane.name)}</text>`);
        for (const [position, start, us] of lane.events) {
          const l = byPosition.get(position), w = Math.max(0.3, us / t.us * width), x = start / t.us * width;
          const c = (l && colours.time(l)) || 'var(--bar)', text = l ? l.label : 'copy';
          out.push(`<rect class="step" data-position="${position}" x="${x.toFixed(2)}" y="${26 + 44 * i}" width="${w.toFixed(2)}" height="22" style="fill:${c}"><title>${escape(`${text}: ${digits(us)} µs`)}</title></rect>`);
          if (w > 60)
            out.push(`<text x="${(x + 4).toFixed(1)}" y="${41 + 44 * i}" style="fill:#14161a;pointer-events:none">${escape(text.slice(0, Math.floor(w / 7)))}</text>`);
        }
      });
      box.replaceChildren(plot('timeline', svg(Math.ceil(width), 44 * t.lanes.length + 20, out.join(''))));
    };
    const range = make('input', { type: 'range', min: '0', max: '5', step: '0.5', value: '0', oninput: () => draw(2 ** Number(range.value)) });
    section(`Timeline of a run, ${digits(t.us)} µs while recorded`, make('div', { class: 'tools' }, 'zoom', range), box);
    draw(1);
  };

  // ---- memory ----
  const memory = () => {
    if (!layers.some((l) => l.alive > 0)) {
      section('Memory', make('p', { id: 'memory' }, `Weights ${mega(program.weights_bytes)}; nothing between inputs and outputs is kept.`));
      return;
    }
    const width = 1350, height = 180, most = Math.max(1, ...layers.map((l) => l.alive)), peak = layers.find((l) => l.alive === most), out = [];
    layers.forEach((l, i) => {
      const x = i / layers.length * width, h = l.alive / most * (height - 30);
      out.push(`<rect class="area step" data-position="${l.position}" x="${x.toFixed(2)}" y="${(height - h).toFixed(1)}" width="${(width / layers.length).toFixed(2)}" height="${h.toFixed(1)}"><title>${escape(`${l.label}: ${mega(l.alive)}`)}</title></rect>`);
    });
    const at = (layers.indexOf(peak) + 0.5) / layers.length * width;
    out.push(`<line class="peak" x1="${at}" x2="${at}" y1="18" y2="${height}"/><text x="${Math.min(at + 5, width - 260)}" y="14">peak ${mega(most)} at ${escape(peak.label)}</text>`);
    const maker = (b) => layers.find((l) => l.writes.includes(b.id)) || byPosition.get(b.first);
    const alive = program.buffers.filter((b) => b.kind === 'arena' && b.bytes > 0 && b.first <= peak.position && b.last >= peak.position).sort((a, b) => b.bytes - a.bytes);
    section('Memory in the arena, from step to step', plot('memory', svg(width, height, out.join(''))),
      make('p', {}, `Weights ${mega(program.weights_bytes)}, arena ${mega(program.arena_bytes)}` + (program.arena_bytes_per_thread > 0 ? `, ${mega(program.arena_bytes_per_thread)} more for each thread behind the first.` : '.') + ' Alive at the peak:'),
      make('table', { id: 'alive' }, ...alive.slice(0, 30).map((b) => make('tr', {}, make('td', { class: 'num' }, mega(b.bytes)),
        make('td', {}, (b.scratch ? 'scratch of ' : 'made by ') + (maker(b) ? maker(b).label : '?')), make('td', { class: 'soft' }, `steps ${b.first} to ${b.last}`)))));
  };

  overview();
  advice();
  graphs();
  table();
  roofline();
  timeline();
  memory();
  document.documentElement.dataset.ready = '1';
})();
