import type { ObjectLiteral } from 'typeorm'
import { tableName } from '../sql/text-table'
import type { AdoptionLock, AdoptOptions, AdoptStep } from './options'
import { AdoptionError, type AdoptSession } from './session'
import type { Target } from './target'

/** The numbers of rows that were written, normalized and numbered. */
interface AdoptCounts {
  filled: number
  normalized: number
  numbered: number
}

/** One run of `adopt`, with what the table is before the current step. */
export interface AdoptRun {
  readonly session: AdoptSession
  readonly options: AdoptOptions
  readonly counts: AdoptCounts
  readonly target: Target
}

/** A row whose text is refused. */
export interface RefusedRow {
  /** Its primary key, by the columns' names in the database; a number of more than 15 characters is a string. */
  readonly key: ObjectLiteral
  /** Why the normalizer refused the text. */
  readonly reason: string
}

/** Rows with equal texts. */
export interface Duplicates {
  /** How many texts have several rows. */
  readonly groups: number
  /** The number of rows to remove so that each text exists once. */
  readonly surplus: number
  /** How many rows the largest group has. */
  readonly largest: number
  /** Primary keys of the first ten groups, the oldest row of each first. */
  readonly first: readonly (readonly ObjectLiteral[])[]
}

/** The result of `adopt`: its changes and its findings. */
export interface AdoptReport {
  /** The first ten refused rows. */
  readonly rejected: readonly RefusedRow[]
  /** How many rows are refused. */
  readonly rejectedTotal: number
  /** Rows that hold the same text; undefined before the index exists. */
  readonly duplicates: Duplicates | undefined
  /** The next step; `done` if the table is adopted. */
  readonly step: AdoptStep
  /** Whether there was nothing to do. */
  readonly unchanged: boolean
  /** The locks on the table, in their order. */
  readonly locks: readonly AdoptionLock[]
  /** How many rows the steps have written. */
  readonly counts: Readonly<AdoptCounts>
}

/** An error that says why the steps would fire triggers of the user. */
export const wouldFire = ({ table, facts }: Target, why: string): AdoptionError =>
  new AdoptionError(
    'user-triggers',
    `${tableName(table)} has triggers on UPDATE (${facts.updateTriggers.join(', ')}), which would fire for every row ` +
      `that is written, and they cannot be left out: ${why}. Let them fire with --user-triggers fire.`,
  )

/**
 * Processes the rows of a table of work in the order of their places. Repeats until no other session has locked any.
 *
 * @param batch processes rows after a place; returns how many rows it saw, the last of them, and how many were locked
 */
export async function throughPlaces(
  session: AdoptSession,
  sizes: { readonly first: number; readonly least: number; readonly fewest?: number },
  batch: (last: string, limit: number) => Promise<{ seen: number; last: string; stuck: number }>,
): Promise<void> {
  let [last, stuck, rounds] = ['0', 0, 1]
  await session.atPace(sizes, async (limit) => {
    const done = await batch(last, limit)
    stuck += done.stuck
    last = done.last
    if (done.seen > 0) return { done: done.seen, more: true }
    if (stuck === 0) return { done: undefined, more: false }
    await session.rest(rounds)
    ;[last, stuck, rounds] = ['0', 0, rounds + 1]
    return { done: undefined, more: true }
  })
}
