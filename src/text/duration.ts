import { DeclarationError } from '../errors'

/** A unit of a {@link Duration}, and how many seconds it lasts at most. */
const UNITS: Readonly<Record<Unit, number>> = {
  second: 1,
  minute: 60,
  hour: 3600,
  day: 86_400,
  week: 604_800,
  month: 31 * 86_400,
  year: 366 * 86_400,
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

/**
 * Returns what Postgres takes as an interval, and what needs no quoting between the quotes of a literal.
 *
 * @param what names the duration in an error: `expires`
 * @throws DeclarationError for anything but a {@link Duration} from 1 second to 10,000 years
 * @example
 * intervalOf('expires', '90 days') // '90 days'
 */
export function intervalOf(what: string, duration: unknown): string {
  const [, digits = '', unit = ''] = (typeof duration === 'string' && SHAPE.exec(duration)) || []
  const seconds = Object.hasOwn(UNITS, unit) ? Number(digits) * UNITS[unit as Unit] : Number.NaN
  if (seconds <= MAX_YEARS * UNITS.year) return `${digits} ${unit}s`
  throw new DeclarationError(
    `"${what}" must be a whole number and a unit, for instance '90 days'. ` +
      `Units range from second to year; the maximum is ${MAX_YEARS.toLocaleString('en')} years.`,
  )
}
