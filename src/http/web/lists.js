// The lists.

function drawViews() {
  const numbers = { pools: status.value?.pools?.total, services: status.value?.services, held: each(status.value?.held).length, nodes: nodesAtWork(status.value), planes: status.value?.controlPlanes?.wrong };
  // Usually, a cluster has no node that leaves service, and no control plane.
  const needed = { nodes: numbers.nodes > 0, planes: Boolean(status.value?.controlPlanes) };
  const isShown = ([view]) => look.view === view || (needed[view] ?? true);
  return Object.entries(VIEWS).filter(isShown).map(([view, title]) =>
    h('button', { key: view, type: 'button', 'aria-current': look.view === view ? 'page' : null, onclick: () => turn({ view }) }, title, numbers[view] ? ` (${numbers[view]})` : null));
}

function table(caption, heads, rows) {
  const head = (text) => h('th', { scope: 'col', class: text.startsWith('#') ? 'number' : null }, text.replace('#', ''));
  // The table can get the focus, so that the arrow keys scroll it.
  return h('div', { class: 'scroll', key: heads.join(), tabindex: 0, role: 'region', 'aria-label': caption }, h('table', null, h('caption', null, caption), h('thead', null, h('tr', null, heads.map(head))), h('tbody', null, rows)));
}
const row = (key, isOpen, ...cells) => h('tr', { key, 'aria-selected': isOpen ? 'true' : null }, cells.map((cell) => (cell?.tag === 'td' ? cell : h('td', null, cell))));
const number = (value) => h('td', { class: 'number' }, value);
const words = (...value) => h('td', { class: 'words' }, value);

const LISTS = {
  pools: ['State', 'Pool', 'Why', '#Observed', '#Required', '#For', '#Out of sync', 'Services or source'],
  held: ['Reason', 'Pool', 'Services or source', '#For', 'Waits for', 'Members kept'],
  services: ['Verdict', 'Service', 'Why', 'Pools', '#Endpoints', '#Slices'],
  planes: ['State', 'Resource', 'Kind', 'Version', 'Since', 'Endpoints', 'What is wrong'],
  nodes: ['State', 'Node', 'Reasons', '#For', '#Pools', '#Down', '#Waiting', '#Failed', 'Why not', 'Ready', 'Entries'],
};

/** Returns the source of a pool's members: its Services, or an xDS source. */
const filledBy = ({ services, source }) => (source === 'kubernetes' ? joined(services) : source ?? '');

const poolName = (item) => `${item.loadBalancer}/${item.backendPool}`;

/** Returns the state of a pool. With a held removal, the state has no colour, and a second tag shows the hold. */
const stateOf = ({ state, held }) => (held ? [h('span', { class: 'tag', title: meaning('state', state) }, state), ' ', h('span', { class: 'tag wait', title: meaning('reason', held.reason) }, 'held')] : word('state', state));

const ROWS = {
  pools: (item) => {
    const name = poolName(item);
    const next = item.blockedForSeconds ? `may go on in ${span(item.blockedForSeconds)}` : '';
    const why = [item.why, item.wouldHold && `guards would hold a removal (${item.wouldHold.reason})`, next];
    return row(name, look.open === `pool:${name}`, stateOf(item), opener('pool', name), words(why.filter(Boolean).join('; ')), number(some(item.observed)),
      number(item.required), number(span(item.stateSeconds)), number(span(item.outOfSyncSeconds)), h('span', { class: 'name' }, filledBy(item)));
  },
  held: (item) => {
    const name = poolName(item);
    const held = item.held ?? item.wouldHold;
    return row(name, look.open === `pool:${name}`, [word('reason', held?.reason), item.held ? null : ' would be held'], opener('pool', name), filledBy(item),
      number(span(held?.seconds ?? null)), words(held && ends(held)), joined(held?.members ?? null));
  },
  services: (item) => {
    const name = `${item.namespace}/${item.name}`;
    return row(name, look.open === `service:${name}`, word('verdict', item.verdictReason), opener('service', name), words(item.verdict), h('span', { class: 'name' }, joined(item.pools)),
      number(item.endpoints), number(item.endpointSlices));
  },
  planes: ({ type, name, state, version, updatedAt, edsName, addresses, error }) => {
    const kind = (type ?? '').slice((type ?? '').lastIndexOf('.') + 1);
    const { healthy, degraded, draining, out } = addresses ?? {};
    const told = addresses && [[healthy, 'healthy'], [degraded, 'degraded'], [draining, 'draining'], [out, 'out']].filter(([number]) => number > 0).map(([number, how]) => `${number} ${how}`);
    return row(`${type}/${name}`, false, word('resourceState', state), h('span', { class: 'name' }, name), kind, version ?? '–', updatedAt ? clock(updatedAt) : '–',
      told ? joined(told) : edsName ?? '–', words(error?.message ?? ''));
  },
  nodes: (node) => {
    const { name, state, reasons, signalSeconds, ready } = node;
    const pools = node.pools ?? {};
    return row(name, look.open === `node:${name}`, word('nodeState', state), opener('node', name), joined(reasons), number(span(signalSeconds)), number(pools.total), number(pools.down),
      number(pools.waiting), number(pools.failed), words(nodeTroubles(node)), ready ? 'yes' : 'no', entries(node));
  },
};

/** Returns the problems of a node that leaves service or comes back. */
function nodeTroubles({ retries, nextInSeconds, lastError, pools: told }) {
  const pools = told ?? {};
  const left = [pools.foreign && `${count(pools.foreign, 'pool')} set to Down by another writer`, pools.unknown && `${count(pools.unknown, 'pool')} with an unknown admin state`, pools.excluded && `${count(pools.excluded, 'pool')} excluded`];
  return [lastError, retries ? `failed ${count(retries, 'time')}` : '', nextInSeconds ? `tried again in ${span(nextInSeconds)}` : '', ...left].filter(Boolean).join('; ');
}
const entries = ({ addresses, instance }) => joined([...each(addresses), ...(instance ? [instance] : [])]);

const ends = (held) => `${meaning('waitsFor', held.waitsFor) || held.waitsFor}${held.endsInSeconds === null ? '' : `, in ${span(held.endsInSeconds)}`}`;

function drawList() {
  if (look.view === 'sources') return status.value ? drawSources(status.value) : [];
  if (list.problem) return [h('p', { class: 'bad' }, list.problem)];
  if (!list.value) return [h('p', { class: 'faint' }, 'reading …')];
  const { next, total } = list.value;
  const items = each(list.value.items);
  const first = (pages.length - 1) * PAGE + 1;
  const filtered = FILTERS[look.view].some((key) => key !== 'sort' && look[key]);
  const caption = `${look.view === 'planes' ? 'Resources' : VIEWS[look.view]}: ${next || pages.length > 1 ? `${first} to ${first + items.length - 1} of ` : ''}${some(total)}${filtered ? ' that match the filter' : ' in all'}`;
  return [
    look.view === 'planes' && drawPlanes(list.value),
    look.view === 'held' && items.length > 0 && [releaseAll(), drawOnce()],
    list.value.items === null ? h('p', null, 'The response has no list.') : items.length ? table(caption, LISTS[look.view], items.map(ROWS[look.view])) : h('p', null, filtered ? 'Nothing matches the filter.' : look.view === 'held' ? 'No removal is held back.' : look.view === 'nodes' ? 'No node leaves service.' : 'There are none.'),
    h('div', { class: 'pager', key: 'pager', hidden: !next && pages.length === 1 },
      h('button', { type: 'button', disabled: pages.length === 1, onclick: () => page(null, true) }, 'Previous page'),
      h('span', { class: 'faint' }, `page ${pages.length} of ${Math.max(Math.ceil(total / PAGE), pages.length)}`),
      h('button', { type: 'button', disabled: !next, onclick: () => page(next) }, 'Next page')),
  ].filter(Boolean);
}

/** Draws the servers and the sources of pools; the list below shows the resources. */
function drawPlanes({ servers, sources }) {
  const server = ({ uri, used, connected, failure, cut }) =>
    row(uri, false, h('span', { class: 'name' }, uri), h('span', { class: connected ? 'good' : used ? 'bad' : '' }, connected ? 'connected' : used ? 'not connected' : 'not used'), words(failure ?? cut ?? ''));
  const pool = ({ loadBalancer, backendPool, state, notManageable }) => h('div', null, state ? opener('pool', `${loadBalancer}/${backendPool}`) : h('span', { class: 'name' }, `${loadBalancer}/${backendPool}`), ` ${notManageable ? `is not written: ${notManageable.detail}` : state ?? 'stays as it is'}`);
  const source = ({ source, assigned, error, ambientErrors, pools }) =>
    row(source, false, word('assigned', assigned), h('span', { class: 'name' }, source), words([error, ...each(ambientErrors)].filter(Boolean).map(({ message }) => h('div', null, message))), each(pools).map(pool));
  return h('div', { key: 'planes' },
    table('Servers', ['Server', 'State', 'Why not'], each(servers).map(server)),
    table('Sources', ['Assigned', 'Source', 'What is wrong', 'Pools'], each(sources).map(source)));
}

function drawSources({ loadBalancers, lanes, sources, leadership }) {
  const lane = (name) => each(lanes).find(({ loadBalancer }) => loadBalancer?.toLowerCase() === name?.toLowerCase());
  const writes = ({ writing }) => (writing ? `${writing.pool}: ${writing.phase} for ${span(writing.seconds)}` : '–');
  const balancer = ({ name, exists, readSeconds, pools, lastError }) => {
    const its = lane(name);
    const shut = its?.fault ? `blocked by ${its.fault}` : its?.blockedForSeconds ? `closed for ${span(its.blockedForSeconds)}: ${meaning('blockedBy', its.blockedBy)}` : '';
    const longest = each(its?.waiting).length ? `${its.waiting.length}, ${its.waiting[0].pool} for ${span(its.waiting[0].seconds)}` : '0';
    return row(name, false, h('span', { class: 'name' }, name), exists === null ? 'not known yet' : exists ? 'there' : 'does not exist', number(pools), number(ago(readSeconds)),
      words(its ? writes(its) : '–'), its ? longest : '–', words([shut, lastError].filter(Boolean).join('; ')));
  };
  const source = ({ kind, phase, synced, objects, heardSeconds, lastError }) =>
    row(kind, false, kind, phase, synced ? 'yes' : 'no', number(objects), number(ago(heardSeconds)), words(lastError ?? ''));
  const certain = leadership && leadership.certainForSeconds !== null ? `, certain for ${span(leadership.certainForSeconds)} more` : '';
  return [
    allRequests(),
    table('Load balancers and their lanes', ['Load balancer', 'Exists', '#Pools', '#Last read', 'Writing', 'Waiting', 'Why not'], each(loadBalancers).map(balancer)),
    h('p', { class: 'faint' }, leadership ? `Leadership: ${leadership.holder ? `${leadership.holder} holds` : 'no replica holds'} the Lease of this controller${certain}.` : ''),
    table('Sources', ['Kind', 'Phase', 'Synced', '#Objects', '#Last heard', 'Last error'], each(sources).map(source)),
  ];
}
