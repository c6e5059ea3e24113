// Drawing: compares the wanted tree with the current one and changes only the differences, so that focus, scroll position
// and selection stay.

const element = (id) => document.getElementById(id);

/** Returns a wanted element. Properties that begin with "on" are handlers; `key` distinguishes it from its siblings. */
function h(tag, properties, ...children) {
  return { tag, properties: properties ?? {}, children: children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false) };
}

function patch(parent, wanted) {
  const kept = new Map();
  for (const node of parent.childNodes) if (node.pageKey !== undefined) kept.set(node.pageKey, node);
  let place = parent.firstChild;
  for (const item of wanted) {
    const node = fitting(item, place, kept);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
    if (item.tag) dress(node, item);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function fitting(item, place, kept) {
  if (!item.tag) {
    const text = String(item);
    if (place?.nodeType !== Node.TEXT_NODE) return document.createTextNode(text);
    if (place.data !== text) place.data = text;
    return place;
  }
  const { key } = item.properties;
  const found = key === undefined ? place : kept.get(key);
  const same = found?.nodeType === Node.ELEMENT_NODE && found.localName === item.tag && found.pageKey === key;
  if (same) return found;
  const made = document.createElement(item.tag);
  made.pageKey = key;
  return made;
}

function dress(node, { properties, children }) {
  const named = new Set();
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'key') continue;
    if (name.startsWith('on')) { node[name] = value; continue; }
    if (value === null || value === undefined || value === false) continue;
    const text = value === true ? '' : String(value);
    named.add(name);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
  // The reader opens and closes details, so the attribute `open` stays.
  for (const name of node.getAttributeNames()) if (!named.has(name) && name !== 'open') node.removeAttribute(name);
  for (const name of ['onclick']) if (!(name in properties)) node[name] = null;
  patch(node, children);
}

/** Draws one part of the page. If that fails, the part shows the error, and the other parts still work. */
function drawPart(id, wanted) {
  let tree;
  try {
    tree = [wanted()].flat(Infinity).filter(Boolean);
  } catch (error) {
    console.error(error);
    tree = [h('p', { class: 'bad broken' }, `This part cannot be shown, because the response is not as the page expects it (${error.message}). The paths below /api/v1 have all of it.`)];
  }
  patch(element(id), tree);
}

/** Formats a time span. */
function span(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  if (minutes < 2880) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} days`;
}

/** Formats the time since something happened. */
const ago = (seconds) => (seconds === null || seconds === undefined ? '–' : `${span(seconds)} ago`);

const count = (number, of) => `${some(number)} ${of}${number === 1 ? '' : 's'}`;
const some = (number) => String(number ?? '?');
const joined = (names) => (names === null ? 'not known' : each(names).length ? each(names).join(', ') : 'none');
/** Formats a time of the API in the reader's time zone. */
function clock(time) {
  const at = new Date(time ?? NaN);
  if (Number.isNaN(at.getTime())) return time ?? 'not known';
  const today = at.toDateString() === new Date().toDateString();
  return today ? at.toLocaleTimeString() : at.toLocaleString();
}

/** Returns a word of the API with its colour and its meaning. An unknown word has neither. */
function word(kind, text, extra) {
  const [colour, meaning] = Object.hasOwn(WORDS[kind], text) ? WORDS[kind][text] : ['', ''];
  return h('span', { class: `tag ${colour}`, title: meaning }, text ?? 'unknown', extra ?? null);
}
const meaning = (kind, text) => (Object.hasOwn(WORDS[kind], text) ? [WORDS[kind][text]].flat().at(-1) : '');

function opener(kind, name, also) {
  const open = `${kind}:${name}`;
  const onclick = () => { returnTo = document.activeElement; turn({ open, ...also }, Boolean(also)); element('one').focus({ preventScroll: true }); };
  return h('button', { class: 'link name', type: 'button', 'data-open': open, 'aria-expanded': String(look.open === open), 'aria-controls': 'one', onclick }, name);
}
let returnTo = null;
