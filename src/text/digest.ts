import { hash } from 'node:crypto'
import { DeclarationError } from '../errors'

/** Computes the hash of a text, with the same result in JavaScript and SQL for every text that Postgres can store. */
export interface Digest {
  /** The name in the option `digest` and in the check. */
  readonly name: string
  /** The type of the hash column. */
  readonly type: 'uuid' | 'bytea'
  /**
   * Returns the hash as a text literal of `type`: 32 hex digits for `uuid`, or `\x` and hex digits for `bytea`. It is
   * always in lower case, so that these strings sort like the hashes in Postgres, bytewise.
   */
  readonly js: (text: string) => string
  /**
   * Returns an SQL expression of `type` over one of type `text`. Every function and type is qualified with `pg_catalog`,
   * so that no `search_path` can substitute another. The database's encoding must be UTF8.
   */
  readonly sql: (expression: string) => string
}

/**
 * MD5 as a `uuid`: 16 bytes. Anyone can create texts with the same MD5; they are stored as a chain. Node.js in FIPS
 * mode has no MD5: use `sha256` there.
 */
export const md5: Digest = {
  name: 'md5',
  type: 'uuid',
  js: (text) => hash('md5', text),
  sql: (expression) => `pg_catalog.md5(${expression})::pg_catalog.uuid`,
}

/** SHA-256 as a `bytea`: 32 bytes (33 with its header). No two texts with the same SHA-256 are known. */
export const sha256: Digest = {
  name: 'sha256',
  type: 'bytea',
  js: (text) => `\\x${hash('sha256', text)}`,
  // A cast of the text to bytea would read backslashes in the text as escapes.
  sql: (expression) => `pg_catalog.sha256(pg_catalog.convert_to(${expression}, 'UTF8'))`,
}

/** Values of the option `digest`, besides a {@link Digest}. */
export type DigestName = 'md5' | 'sha256'

export const digests: Readonly<Record<DigestName, Digest>> = { md5, sha256 }

/** The units of a {@link Duration}, and the maximum number of seconds of each. */
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
 * A whole number and a unit: `'24 hours'`, `'90 days'`, `'1 year'`. The database adds it to a point in time, so months
 * and years follow the calendar.
 */
export type Duration = `${number} ${Unit | `${Unit}s`}`

/** Far below the limit of what Postgres can add to a point in time. */
const MAX_YEARS = 10_000

const SHAPE = /^([1-9]\d{0,14}) ([a-z]+?)s?$/

/** A duration in the form that is sent. */
interface SentDuration {
  /** An interval for Postgres, which needs no escapes in a literal. */
  readonly interval: string
  /** Limited to the maximum of a timer and of a Postgres setting: 24 days. */
  readonly milliseconds: number
}

/**
 * @param what the name of the duration in an error: `expires`
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
