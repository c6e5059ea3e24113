// What is looked at: it stands in the address, so that a reload or a colleague sees the same. And the rounds.

const look = { view: 'pools', state: '', reason: '', lb: '', contains: '', open: '' };
let pages = [null];  // The `after` of the pages up to the one that is shown.

function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  for (const key of Object.keys(look)) look[key] = said.get(key) ?? (key === 'view' ? 'pools' : '');
  if (!Object.hasOwn(VIEWS, look.view)) look.view = 'pools';
}

function writeAddress() {
  const said = Object.entries(look).filter(([key, value]) => value !== '' && !(key === 'view' && value === 'pools'));
  history.replaceState(null, '', `#${new URLSearchParams(said)}`);
}

/** Changes what is looked at; a list that is asked for something else begins anew, on its first page. */
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

const status = new Part((signal) => ask('status', {}, {}, signal));
const list = new Part((signal) => {
  const { view, state, reason, lb, contains } = look;
  const wanted = { state, reason, lb, contains, limit: PAGE, after: pages.at(-1) };
  const known = API[view].parameters;
  return ask(view, {}, Object.fromEntries(Object.entries(wanted).filter(([key]) => known.includes(key))), signal);
});
const one = new Part(async (signal) => {
  const [kind, first, second] = opened();
  if (kind === 'service') return ask('service', { namespace: first, name: second }, {}, signal);
  const found = await ask('pool', { lb: first, pool: second }, {}, signal);
  if (!found.value) return found;
  const verdicts = found.value.pool.services.slice(0, VERDICTS).map(async (key) => {
    const [namespace, name] = halves(key);
    const { value, problem } = await ask('service', { namespace, name }, {}, signal);
    return [key, value ? value.verdict : problem];
  });
  return { value: { pool: found.value.pool, verdicts: await Promise.all(verdicts) } };
});

/** A name of two halves, around its first slash. */
function halves(name) {
  const at = name.indexOf('/');
  return [name.slice(0, at), name.slice(at + 1)];
}

function opened() {
  const at = look.open.indexOf(':');
  return [look.open.slice(0, at), ...halves(look.open.slice(at + 1))];
}

// ---- all of it ----

function options(select, first, values, chosen) {
  const all = chosen && !values.includes(chosen) ? [...values, chosen] : values;
  patch(select, [h('option', { key: '', value: '' }, first), ...all.map((value) => h('option', { key: value, value }, value))]);
  if (select.value !== chosen) select.value = chosen;
}

function drawFilter() {
  for (const label of document.querySelectorAll('#filter label')) label.hidden = !label.dataset.for.split(' ').includes(look.view);
  options(element('state'), 'all', Object.keys(look.view === 'nodes' ? WORDS.nodeState : WORDS.state), look.state);
  options(element('reason'), 'all', Object.keys(WORDS.reason), look.reason);
  const present = (status.value?.loadBalancers ?? []).filter(({ exists }) => exists !== false);
  options(element('lb'), 'all', present.map(({ name }) => name), look.lb);
  const text = element('contains');
  if (document.activeElement !== text && text.value !== look.contains) text.value = look.contains;
}

function draw() {
  patch(element('alarm'), drawAlarm());
  patch(element('who'), drawWho().filter(Boolean));
  patch(element('attention'), drawAttention());
  patch(element('numbers'), drawNumbers().flat());
  patch(element('views'), drawViews());
  drawFilter();
  patch(element('rows'), drawList());
  element('one').hidden = look.open === '';
  element('halves').classList.toggle('open', look.open !== '');
  if (look.open !== '') patch(element('one'), drawOne());
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
  draw();  // Whatever is left from before is shown as old first.
  round();
  rounds = setInterval(round, EVERY_MS);
  ticks = setInterval(() => patch(element('alarm'), drawAlarm()), 1000);
}

function start() {
  readAddress();
  element('contains').value = look.contains;
  element('filter').onsubmit = (event) => event.preventDefault();
  for (const key of ['state', 'reason', 'lb']) element(key).onchange = (event) => turn({ [key]: event.currentTarget.value });
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
