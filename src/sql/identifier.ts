import { createHash } from 'node:crypto'

/** Postgres keeps 63 bytes of a name and drops the rest silently (NAMEDATALEN − 1). */
const NAME_LIMIT_BYTES = 63
const SUFFIX_BYTES = 8
/** For what a trigger's name adds to that of its set. */
const ROOM_BYTES = 16

/** An identifier, quoted for any name Postgres can hold. */
export function quote(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

/** A string literal; a backslash means itself as long as `standard_conforming_strings` is on, as it is by default. */
export function literal(text: string): string {
  if (!text.includes('\\')) return `'${text.replaceAll("'", "''")}'`
  // By its code: `migration:generate --pretty` breaks such a string at a quote that is doubled.
  return `E'${text.replaceAll('\\', '\\\\').replaceAll("'", '\\047')}'`
}

/** A table's name as SQL; without a schema the server's `search_path` decides, as it does for TypeORM's own SQL. */
export function qualified(schema: string | undefined, name: string): string {
  return schema === undefined ? quote(name) : `${quote(schema)}.${quote(name)}`
}

/**
 * A name for a function or trigger, of letters, digits and `_` only: what deparses DDL without quotes takes it too. A
 * digest tells apart what would be alike then: `user` and `profile_url`, `user_profile` and `url`.
 */
export function plainName(prefix: string, ...parts: readonly string[]): string {
  const plain = parts.map((part) => part.toLowerCase().replaceAll(/[^a-z0-9]+/g, '_'))
  const name = `${prefix}_${plain.join('__')}`
  const isPlain = plain.every((part, index) => part === parts[index] && /^[a-z0-9]+(?:_[a-z0-9]+)*$/.test(part))
  if (isPlain && Buffer.byteLength(name) <= NAME_LIMIT_BYTES - ROOM_BYTES) return name
  const start = name.slice(0, NAME_LIMIT_BYTES - ROOM_BYTES - SUFFIX_BYTES - 1).replace(/_+$/, '')
  return `${start}_${createHash('sha1').update(JSON.stringify(parts)).digest('hex').slice(0, SUFFIX_BYTES)}`
}

/** The name itself where Postgres can hold it; else its start and a digest of the whole, so that two stay two. */
export function fitName(name: string): string {
  if (Buffer.byteLength(name) <= NAME_LIMIT_BYTES) return name
  const digest = createHash('sha1').update(name).digest('hex').slice(0, SUFFIX_BYTES)
  let start = name
  while (Buffer.byteLength(start) > NAME_LIMIT_BYTES - SUFFIX_BYTES - 1) start = Array.from(start).slice(0, -1).join('')
  return `${start}_${digest}`
}

/** Items in as few lines as hold them, up to about this many characters each; no item is broken. */
export function packed(items: readonly string[], separator: string, characters: number): string[] {
  const lines: string[] = []
  for (const item of items) {
    const last = lines.at(-1)
    if (last === undefined || last.length + item.length > characters) lines.push(item)
    else lines[lines.length - 1] = `${last}${separator}${item}`
  }
  return lines
}

const LINE_CHARACTERS = 100

/** A list for SQL that a person reads: separated by commas, in lines of a good length, all but the first indented. */
export const list = (items: readonly string[], indent: number): string =>
  packed(items, ', ', LINE_CHARACTERS).join(`,\n${' '.repeat(indent)}`)

/** Arrays side by side, for FROM: with several of them, `unnest` by its full name is another function, which is not there. */
export const unnest = (arrays: readonly string[], indent = 2): string => {
  const calls = arrays.map((one) => `pg_catalog.unnest(${one})`)
  return arrays.length === 1 ? calls.join('') : `ROWS FROM (${list(calls, indent)})`
}

/** Dollar quotes whose tag does not occur in the body, so that no name in it can end the string. */
export function dollarQuote(body: string): string {
  let tag = 'guard'
  while (body.includes(`$${tag}`)) tag += '_'
  return `$${tag}$${body}$${tag}$`
}

/** An expression in the server's words, in which columns have other names. */
export const renameIn = (expression: string, renames: ReadonlyMap<string, string>): string =>
  expression.replaceAll(/'[^']*'|"(?:[^"]|"")*"|[\p{L}_][\p{L}\d_$]*/gu, (token) => {
    const to = renames.get(token.startsWith('"') ? token.slice(1, -1).replaceAll('""', '"') : token)
    return to === undefined ? token : quote(to)
  })

const COMMENT_OR_QUOTED = /--[^\n]*|\/\*[^]*?\*\/|"[^"]*"|'[^']*'/g

/**
 * SQL as it is compared: without comments, whose words may change, and without layout, for `migration:generate --pretty`
 * breaks and indents lines, in bodies and literals too.
 */
export const withoutComments = (sql: string): string =>
  sql.replaceAll(COMMENT_OR_QUOTED, (one) => (/^["']/.test(one) ? one : ' ')).replaceAll(/\s+/g, '')
