// The selected view and filters, and the periodic reads. The address contains the selection, so that a reload or a
// colleague sees the same.

const look = { view: 'pools', state: '', outOfSync: '', reason: '', lb: '', verdict: '', sort: '', contains: '', open: '' };
let pages = [null];  // The `after` of each page up to the current one.

function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  for (const key of Object.keys(look)) look[key] = said.get(key) ?? (key === 'view' ? 'pools' : '');
  if (!Object.hasOwn(VIEWS, look.view)) look.view = 'pools';
}

function writeAddress() {
  const said = Object.entries(look).filter(([key, value]) => value !== '' && !(key === 'view' && value === 'pools'));
  history.replaceState(null, '', `#${new URLSearchParams(said)}`);
}

/** Changes the selection. With `begin`, the list is read again from its first page. */
function turn(change, begin = true) {
  // Nodes have other states than pools.
  if ('view' in change && (change.view === 'nodes') !== (look.view === 'nodes')) change = { state: '', ...change };
  const opens = 'open' in change && change.open !== look.open;
  Object.assign(look, change);
  writeAddress();
  if (opens) { one.reset(); if (look.open) one.load(); }
  if (begin) { pages = [null]; list.reset(); if (look.view !== 'sources') list.load(); }
  draw();
}

function page(after, back) {
  if (back) pages.pop(); else pages.push(after);
  list.reset();
  list.load();
  draw();
  element('list').scrollIntoView({ block: 'nearest' });
}

const status = new Part((signal) => ask('status', [], {}, signal));
const list = new Part((signal) => {
  // The most serious verdicts come first, unless the reader selects another order.
  const wanted = { ...look, sort: look.sort || 'verdict' };
  const parameters = FILTERS[look.view].map((key) => [key, wanted[key]]);
  return ask(look.view, [], { ...Object.fromEntries(parameters), limit: PAGE, after: pages.at(-1) }, signal);
});
const one = new Part(async (signal) => {
  const [kind, ...names] = opened();
  if (!Object.hasOwn(KINDS, kind)) return { problem: 'There is no such thing.' };
  const found = await ask(kind, names, {}, signal);
  if (kind !== 'pool' || !found.value?.pool) return found;
  const verdicts = each(found.value.pool.services).slice(0, VERDICTS).map(async (key) => {
    const { value, problem } = await ask('service', halves(key), {}, signal);
    return { key, verdict: value ? value.verdict : null, problem };
  });
  return { value: { pool: found.value.pool, verdicts: await Promise.all(verdicts) } };
});

/** Splits a name at its first slash. */
function halves(name) {
  const at = name.indexOf('/');
  return [name.slice(0, at), name.slice(at + 1)];
}

function opened() {
  const at = look.open.indexOf(':');
  const [kind, name] = [look.open.slice(0, at), look.open.slice(at + 1)];
  return [kind, ...(kind === 'node' ? [name] : halves(name))];
}

// ---- the whole page ----

function options(select, first, values, chosen) {
  const all = chosen && !values.includes(chosen) ? [...values, chosen] : values;
  patch(select, [h('option', { key: '', value: '' }, first), ...all.map((value) => h('option', { key: value, value }, value))]);
  if (select.value !== chosen) select.value = chosen;
}

function drawFilter() {
  for (const label of document.querySelectorAll('#filter label')) label.hidden = !label.dataset.for.split(' ').includes(look.view);
  options(element('state'), 'all', Object.keys(look.view === 'nodes' ? WORDS.nodeState : WORDS.state), look.state);
  options(element('reason'), 'all', Object.keys(WORDS.reason), look.reason);
  options(element('verdict'), 'all', Object.keys(WORDS.verdict), look.verdict);
  for (const key of ['outOfSync', 'sort']) if (element(key).value !== look[key]) element(key).value = look[key];
  const present = each(status.value?.loadBalancers).filter(({ exists }) => exists !== false);
  options(element('lb'), 'all', present.map(({ name }) => name), look.lb);
  const text = element('contains');
  if (document.activeElement !== text && text.value !== look.contains) text.value = look.contains;
}

function draw() {
  missed.clear();
  drawPart('alarm', drawAlarm);
  drawPart('who', drawWho);
  drawPart('sync', drawSync);
  drawPart('attention', drawAttention);
  drawPart('numbers', drawNumbers);
  drawPart('views', drawViews);
  drawFilter();
  drawPart('rows', drawList);
  element('one').hidden = look.open === '';
  drawPart('one', drawOne);
  drawPart('missed', drawMissed);
}

function round() {
  for (const part of [status, list, one]) if (shownPart(part)) part.load();
}

let rounds = null;
let ticks = null;
function wake() {
  clearInterval(rounds);
  clearInterval(ticks);
  rounds = ticks = null;
  if (document.hidden) return [status, list, one].forEach((part) => part.rest());
  draw();  // Earlier answers are shown as old until the first read completes.
  round();
  rounds = setInterval(round, EVERY_MS);
  ticks = setInterval(() => drawPart('alarm', drawAlarm), 1000);
}

function start() {
  readAddress();
  element('contains').value = look.contains;
  element('filter').onsubmit = (event) => event.preventDefault();
  for (const key of ['state', 'outOfSync', 'reason', 'lb', 'verdict', 'sort']) element(key).onchange = (event) => turn({ [key]: event.currentTarget.value });
  let typing = null;
  element('contains').oninput = (event) => {
    const contains = event.currentTarget.value.trim();
    clearTimeout(typing);
    typing = setTimeout(() => turn({ contains }), 250);
  };
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && look.open !== '' && event.target.localName !== 'input') close();
  });
  document.addEventListener('visibilitychange', wake);
  addEventListener('hashchange', () => { readAddress(); pages = [null]; list.reset(); one.reset(); draw(); round(); });
  wake();
}

start();
