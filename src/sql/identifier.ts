import { createHash } from 'node:crypto'

/** Postgres silently truncates names to 63 bytes (NAMEDATALEN − 1). */
const NAME_LIMIT_BYTES = 63
const SUFFIX_BYTES = 8
/** Reserved for the suffix that a trigger's name adds to the name of its set. */
const ROOM_BYTES = 16

/** Quotes an identifier. Any PostgreSQL name is possible. */
export function quote(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

/** Writes a string literal that means the same whether `standard_conforming_strings` is on or off. */
export function literal(text: string): string {
  if (!text.includes('\\')) return `'${text.replaceAll("'", "''")}'`
  // The quote is an escape because `migration:generate --pretty` splits such a string at a doubled quote.
  return `E'${text.replaceAll('\\', '\\\\').replaceAll("'", '\\047')}'`
}

/** Returns a table's name as SQL. Without a schema, the server's `search_path` decides, as for TypeORM's own SQL. */
export function qualified(schema: string | undefined, name: string): string {
  return schema === undefined ? quote(name) : `${quote(schema)}.${quote(name)}`
}

/**
 * Returns a name for a function or trigger, with only letters, digits and `_`, for tools that deparse DDL without
 * quotes. A digest distinguishes names that would be the same: `user` and `profile_url`, `user_profile` and `url`.
 */
export function plainName(prefix: string, ...parts: readonly string[]): string {
  const plain = parts.map((part) => part.toLowerCase().replaceAll(/[^a-z0-9]+/g, '_'))
  const name = `${prefix}_${plain.join('__')}`
  const isPlain = plain.every((part, index) => part === parts[index] && /^[a-z0-9]+(?:_[a-z0-9]+)*$/.test(part))
  if (isPlain && Buffer.byteLength(name) <= NAME_LIMIT_BYTES - ROOM_BYTES) return name
  const start = name.slice(0, NAME_LIMIT_BYTES - ROOM_BYTES - SUFFIX_BYTES - 1).replace(/_+$/, '')
  return `${start}_${createHash('sha1').update(JSON.stringify(parts)).digest('hex').slice(0, SUFFIX_BYTES)}`
}

/** Returns the name, or its start with a digest of the whole if it is too long, so that two names stay different. */
export function fitName(name: string): string {
  if (Buffer.byteLength(name) <= NAME_LIMIT_BYTES) return name
  const digest = createHash('sha1').update(name).digest('hex').slice(0, SUFFIX_BYTES)
  let start = name
  while (Buffer.byteLength(start) > NAME_LIMIT_BYTES - SUFFIX_BYTES - 1) start = Array.from(start).slice(0, -1).join('')
  return `${start}_${digest}`
}

/** Packs items into as few lines as possible, of up to about this many characters each. No item is split. */
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

/** A readable list for SQL: separated by commas, wrapped, with every line but the first indented. */
export const list = (items: readonly string[], indent: number): string =>
  packed(items, ', ', LINE_CHARACTERS).join(`,\n${' '.repeat(indent)}`)

/** Parallel arrays for FROM. `pg_catalog.unnest` takes one array only; the form for several arrays is grammar. */
export const unnest = (arrays: readonly string[], indent = 2): string => {
  const calls = arrays.map((one) => `pg_catalog.unnest(${one})`)
  return arrays.length === 1 ? calls.join('') : `ROWS FROM (${list(calls, indent)})`
}

/** Quotes the body with a dollar tag that does not occur in it, so that no name in the body can end the string. */
export function dollarQuote(body: string): string {
  let tag = 'guard'
  while (body.includes(`$${tag}`)) tag += '_'
  return `$${tag}$${body}$${tag}$`
}

/** Renames columns in an expression of the server. */
export const renameIn = (expression: string, renames: ReadonlyMap<string, string>): string =>
  expression.replaceAll(/'[^']*'|"(?:[^"]|"")*"|[\p{L}_][\p{L}\d_$]*/gu, (token) => {
    const to = renames.get(token.startsWith('"') ? token.slice(1, -1).replaceAll('""', '"') : token)
    return to === undefined ? token : quote(to)
  })

/** The name of a transition table or of a WITH query. It must not hide a table from the functions. */
export const transition = (name: string, ...tables: readonly string[]): string =>
  tables.includes(name) ? transition(`${name}_`, ...tables) : name
