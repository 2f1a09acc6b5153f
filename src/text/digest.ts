import { hash } from 'node:crypto'
import { DeclarationError } from '../errors'

/** Makes the hash of a text: the same in JavaScript and in SQL for every text that Postgres can store. */
export interface Digest {
  /** The name in the option `digest` and in the check. */
  readonly name: string
  /** Type of the hash column. */
  readonly type: 'uuid' | 'bytea'
  /**
   * Returns the hash as a text literal of `type`: 32 hex digits for `uuid`, `\x` and hex digits for `bytea`. Always in
   * lower case, so that sorting these strings sorts the hashes bytewise, as Postgres does.
   */
  readonly js: (text: string) => string
  /**
   * Returns an SQL expression of `type` over one of type `text`. Every function and type is qualified with `pg_catalog`,
   * so that no `search_path` can substitute another. The database's encoding must be UTF8.
   */
  readonly sql: (expression: string) => string
}

/**
 * MD5 as a `uuid`: 16 bytes. Anyone can make texts with equal MD5; they are stored side by side as a chain. Node.js in
 * FIPS mode has no MD5: use `sha256` there.
 */
export const md5: Digest = {
  name: 'md5',
  type: 'uuid',
  js: (text) => hash('md5', text),
  sql: (expression) => `pg_catalog.md5(${expression})::pg_catalog.uuid`,
}

/** SHA-256 as a `bytea`: 32 bytes (33 with its header). No two texts of equal SHA-256 are known. */
export const sha256: Digest = {
  name: 'sha256',
  type: 'bytea',
  js: (text) => `\\x${hash('sha256', text)}`,
  // Not a cast of the text to bytea, which would read backslashes in the text as escapes.
  sql: (expression) => `pg_catalog.sha256(pg_catalog.convert_to(${expression}, 'UTF8'))`,
}

/** What the option `digest` takes, besides a {@link Digest}. */
export type DigestName = 'md5' | 'sha256'

export const digests: Readonly<Record<DigestName, Digest>> = { md5, sha256 }

/** A unit of a {@link Duration}, and how many seconds it lasts at most. */
const UNITS: Readonly<Record<Unit, number>> = {
  second: 1,
  minute: 60,
  hour: 3600,
  day: 86_400,
  week: 604_800,
  month: 2_678_400,
  year: 31_622_400,
}

type Unit = 'second' | 'minute' | 'hour' | 'day' | 'week' | 'month' | 'year'

/**
 * A whole number and a unit: `'24 hours'`, `'90 days'`, `'1 year'`. The database adds it to a point in time, so that
 * months and years are those of the calendar.
 */
export type Duration = `${number} ${Unit | `${Unit}s`}`

/** Far within what Postgres can add to a point in time. */
const MAX_YEARS = 10_000

const SHAPE = /^([1-9]\d{0,14}) ([a-z]+?)s?$/

/** A duration as it is sent. */
interface SentDuration {
  /** What Postgres takes as an interval, and what needs no quoting between the quotes of a literal. */
  readonly interval: string
  /** At most what a timer and a setting of Postgres can be: 24 days. */
  readonly milliseconds: number
}

/**
 * @param what names the duration in an error: `expires`
 * @throws DeclarationError for anything but a {@link Duration} from 1 second to 10,000 years
 * @example
 * durationOf('expires', '90 days').interval // '90 days'
 */
export function durationOf(what: string, duration: unknown): SentDuration {
  const [, digits = '', unit = ''] = (typeof duration === 'string' && SHAPE.exec(duration)) || []
  const seconds = Object.hasOwn(UNITS, unit) ? Number(digits) * UNITS[unit as Unit] : Number.NaN
  if (seconds <= MAX_YEARS * UNITS.year) {
    return { interval: `${digits} ${unit}s`, milliseconds: Math.min(seconds * 1_000, 2 ** 31 - 1) }
  }
  throw new DeclarationError(
    `"${what}" must be a whole number and a unit, for instance '90 days'. ` +
      `Units range from second to year; the maximum is ${MAX_YEARS.toLocaleString('en')} years.`,
  )
}
