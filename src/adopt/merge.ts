import type { DataSource, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { checkOptions, RULE, type Rules } from '../options'
import {
  clearFlags,
  decideGroup,
  createLog,
  deleteRows,
  dropPlaces,
  findSurplus,
  lockPairs,
  logRows,
  READ_COLUMNS,
  readGroups,
  readKeys,
  readPlaces,
  readSets,
  type Reference,
  referencesTo,
  repoint,
  seePairs,
  seeSelf,
  setValues,
  stillReferring,
} from '../sql/adopt-merge'
import { type KeyedTable, READ_KEYED } from '../sql/adopt-conflicts'
import { isBusyError, serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import { findDrift } from '../schema/drift'
import { type AdoptOptions, withTarget } from './adopt'
import { NAMED_RULES, namedReferences, type NamedReferences } from './named-references'
import { Conflicts, Unmergeable } from './conflicts'
import { AdoptionError } from './error'
import { parseRows } from './exact'
import { BATCH_RULES, type BatchOption, LOCK_RULES, type LockOption } from './options'
import { type AdoptSession, BatchSize, type Seams } from './session'
import { findDeclaration, type Target } from './target'

/** Options of the merge of duplicates. */
export interface MergeOptions extends NamedReferences, Pick<AdoptOptions, LockOption | BatchOption> {
  /**
   * Which row of equal texts stays, by primary key. A row that is not deleted softly is preferred to one that is. A
   * function chooses for each group.
   */
  readonly keep: 'oldest' | 'newest' | MergeRows
  /** Called after each batch with the number of rows that are merged by then. */
  readonly onProgress?: (merged: number) => void
}

/**
 * Chooses among rows of equal text. Their values come by the columns' names in the database, as JSON has them; numbers
 * that JavaScript would round are strings.
 */
export type MergeRows = (rows: readonly ObjectLiteral[]) => MergeDecision | Promise<MergeDecision>

/** What becomes of rows of equal text. */
export interface MergeDecision {
  /** One of the rows. */
  readonly keep: ObjectLiteral
  /** New values of its columns, by their names in the database; not of the key, the text or its scope. */
  readonly set?: ObjectLiteral
}

const RULES: Rules<MergeOptions> = {
  ...LOCK_RULES,
  ...BATCH_RULES,
  keep: {
    takes: (value) => typeof value === 'function' || value === 'oldest' || value === 'newest',
    expected: 'oldest, newest or a function',
  },
  ...NAMED_RULES,
  onProgress: RULE.function,
}

/** The result of a merge: what became of the duplicates. */
export interface MergeReport {
  readonly merged: number
  /** Rows that are left as they are, and the constraint or the reason. */
  readonly left: readonly LeftRow[]
}

/** A row that still holds the text of another one. */
export interface LeftRow {
  /** Its primary key, by the columns' names in the database. */
  readonly row: ObjectLiteral
  /** Of the row that would have stayed. */
  readonly kept: ObjectLiteral
  /** A constraint's name, or a clause. */
  readonly reason: string
}

/** One run. */
interface Merging {
  readonly session: AdoptSession
  readonly target: Target
  readonly references: readonly Reference[]
  readonly conflicts: Conflicts
  readonly clears: boolean
  /** A function chose: rows that stay may get other values. */
  readonly decides: boolean
  readonly onProgress: (merged: number) => void
  readonly left: LeftRow[]
  merged: number
  /** So many rows were found, and were no duplicates any more when their turn came. */
  changed: number
}

const FIRST_ROWS = 20
/** Clients that change duplicates all the time must not keep a merge from its end; the adoption reports what is left. */
const MOST_ROUNDS = 100
const LEAST_ROWS = 5

/**
 * Merges rows that hold the same text into one: references are turned to the row that stays, the others are deleted,
 * and a log keeps them whole. If a unique index of a referring table prevents that, the row is left and reported.
 *
 * @throws AdoptionError for a table that is not adopted, and while an adoption is running
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export async function mergeDuplicates(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: MergeOptions,
): Promise<MergeReport> {
  checkOptions('mergeDuplicates()', options, RULES, ['keep'])
  return await mergeWith(dataSource, entity, options, {})
}

/** @param seams of tests */
export async function mergeWith(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: MergeOptions,
  seams: Seams,
): Promise<MergeReport> {
  const declaration = findDeclaration(dataSource, entity, options.property)
  return await withTarget({ dataSource, declaration, options, seams }, async (session, target) => {
    requireAdopted(target, true)
    const references = [
      ...(await referencesTo(session.query, target.facts.oid)),
      ...(await namedReferences(session, target, options)),
    ]
    const { deleteDateColumn } = declaration.metadata
    await session.all(createLog(target.on))
    const { keep } = options
    const order = keep === 'newest' ? keep : 'oldest'
    // Foreign keys and the user's triggers are to run; only the flags are cleared without the guard.
    const clears = await session.becomeReplica()
    if (clears) await session.set('session_replication_role', 'origin')
    const conflicts = new Conflicts(session, target.on, Object.keys(options.conflict ?? {}))
    const decides = typeof keep === 'function'
    const merging: Merging = {
      session,
      target,
      references,
      conflicts,
      clears,
      decides,
      onProgress: options.onProgress ?? ((): void => {}),
      left: [],
      merged: 0,
      changed: 0,
    }
    // Where the row that was to stay is gone, or has another text, the others of its group have equal texts still.
    for (let round = 1; round === 1 || (merging.changed > 0 && round <= MOST_ROUNDS); round += 1) {
      merging.changed = 0
      merging.left.length = 0
      await session.all(findSurplus(target.on, order, deleteDateColumn?.databaseName))
      if (decides) await decideGroups(merging, keep)
      await mergeAll(merging)
    }
    return { merged: merging.merged, left: merging.left }
  })
}

export function requireAdopted({ declaration, state, on }: Target, wanted: boolean): void {
  const isAdopted = findDrift(declaration.table, state).length === 0
  if (isAdopted === wanted) return
  throw new AdoptionError(
    'unsupported',
    wanted
      ? `${tableName(on.table)} is not adopted yet: run adopt first.`
      : `${tableName(on.table)} is unique, so merged rows would be duplicates again: run abandon first.`,
  )
}

const GROUPS = 100

/** Asks the function for every group, outside of a transaction: what has changed by the time of the merge stays. */
async function decideGroups(merging: Merging, merge: MergeRows): Promise<void> {
  const { session } = merging
  const { on, facts } = merging.target
  const [keyed] = await session.query<{ found: string }>(READ_KEYED, [tableName(on.table)])
  const { types } = JSON.parse(keyed?.found ?? '') as KeyedTable
  const columns = await session.query<{ name: string }>(READ_COLUMNS, [facts.oid])
  const fixed = new Set([...on.primary, ...on.table.scope, ...on.table.text.map(({ name }) => name)])
  const free = new Set(columns.map(({ name }) => name).filter((name) => !fixed.has(name)))
  for (let last = '0'; ;) {
    const groups = await session.query<Record<'places' | 'rows' | 'keys', string>>(readGroups(on), [last, GROUPS])
    for (const group of groups) {
      const [rows, keys] = [parseRows(group.rows, 2) as ObjectLiteral[], JSON.parse(group.keys) as string[][]]
      const places = (JSON.parse(group.places) as number[]).map(String)
      last = places.at(-1) ?? last
      if (rows.length === places.length + 1) {
        const { keep, set } = requireDecision(await merge(rows), free)
        const kept = requireRow(rows, keep, on.primary)
        const others = keys.filter((_, index) => index !== kept)
        const values = [places, JSON.stringify(others), keys[kept], set && JSON.stringify(set)]
        await session.query(decideGroup(on, types), values)
      } else await dropChanged(merging, places)
    }
    if (groups.length < GROUPS) return
    await session.breathe()
  }
}

/** A file is not compiled against our types: its function may have returned nothing, or a row. */
type AnyDecision = { readonly [Key in keyof MergeDecision]?: MergeDecision[Key] | null }

function requireDecision(given: AnyDecision | null | undefined, free: ReadonlySet<string>): AnyDecision {
  const decision = given ?? {}
  const other = Object.keys(decision.set ?? {}).find((name) => !free.has(name))
  if (other === undefined) return decision
  throw new DeclarationError(
    `merge(): "set" may not name "${other}". Name columns of the table but the key, the text and its scope.`,
  )
}

function requireRow(rows: readonly ObjectLiteral[], keep: AnyDecision['keep'], primary: readonly string[]): number {
  const found = rows.findIndex((row) => row === keep || primary.every((name) => row[name] === keep?.[name]))
  if (found !== -1) return found
  throw new DeclarationError('merge(): "keep" must be one of the rows. Return { keep: rows[0] }, for instance.')
}

/** Rows that are gone, or no duplicates any more. */
async function dropChanged(merging: Merging, places: readonly string[]): Promise<void> {
  merging.changed += places.length
  await merging.session.query(dropPlaces(merging.target.on), [places])
}

async function setAll({ session, target: { on } }: Merging, ready: readonly string[]): Promise<void> {
  for (const { place, data } of await session.query<Record<'place' | 'data', string>>(readSets(on), [ready])) {
    const columns = Object.keys(JSON.parse(data) as ObjectLiteral)
    if (columns.length === 0) continue
    const [log = '', write = ''] = setValues(on, columns)
    await session.query(log, [place, on.table.guard])
    await session.query(write, [place])
  }
}

async function mergeAll(merging: Merging): Promise<void> {
  const { session, target } = merging
  const size = new BatchSize(session.manners.batch, LEAST_ROWS, FIRST_ROWS)
  for (let [last, busy, rounds] = ['0', 0, 1]; ;) {
    const rows = await session.query<{ place: string }>(readPlaces(target.on), [last, size.value])
    const places = rows.map(({ place }) => place)
    if (places.length > 0) {
      const started = performance.now()
      busy += await mergeBatch(merging, places)
      size.took(performance.now() - started, places.length)
      last = places.at(-1) ?? last
      merging.onProgress(merging.merged)
    } else if (busy === 0) return
    else {
      await session.rest(rounds)
      ;[last, busy, rounds] = ['0', 0, rounds + 1]
    }
    await session.breathe()
  }
}

/**
 * @param clears a unique index stood against the only row: what clashes with it goes first
 * @returns how many rows are left for later, because somebody has them locked
 */
async function mergeBatch(merging: Merging, places: readonly string[], clears = false): Promise<number> {
  try {
    const { busy, merged, selves } = await merging.session.together(
      async () => await mergeRows(merging, places, clears),
    )
    merging.merged += merged
    await leave(merging, selves, 'it would refer to itself')
    return busy
  } catch (error) {
    const { code, constraint } = serverError(error) ?? {}
    if (isBusyError(error)) return places.length
    if (error instanceof Unmergeable) return await leave(merging, places, error.message)
    if (code === undefined || !/^(?:23|P0|2F|09)/.test(code)) throw error
    if (places.length > 1) return await mergeEach(merging, places)
    if (code === SQLSTATE.uniqueViolation && !clears) return await mergeBatch(merging, places, true)
    return await leave(merging, places, constraint ?? code)
  }
}

async function mergeEach(merging: Merging, places: readonly string[]): Promise<number> {
  let busy = 0
  for (const place of places) busy += await mergeBatch(merging, [place])
  return busy
}

async function leave({ session, target, left }: Merging, places: readonly string[], reason: string): Promise<number> {
  if (places.length === 0) return 0
  for (const { row, kept } of await session.query<Record<'row' | 'kept', string>>(readKeys(target.on), [places])) {
    left.push({ row: parseRows(row, 1) as ObjectLiteral, kept: parseRows(kept, 1) as ObjectLiteral, reason })
  }
  await session.query(dropPlaces(target.on), [places])
  return 0
}

/** What became of the rows of one transaction. */
interface Merged {
  /** Somebody else has so many of them locked. */
  readonly busy: number
  readonly merged: number
  /** Those of which the row that stays refers to the one that goes. */
  readonly selves: readonly string[]
}

async function mergeRows(merging: Merging, places: readonly string[], clears: boolean): Promise<Merged> {
  const { session, target, references } = merging
  const { on } = target
  const placesOf = async (sql: string, of: readonly string[]): Promise<string[]> =>
    (await session.query<{ place: string }>(sql, [of])).map(({ place }) => place)
  const seen = new Set(await placesOf(seePairs(on), places))
  const locked = await placesOf(lockPairs(on), places)
  const selves = new Set<string>()
  for (const one of references.filter(({ own }) => own)) {
    for (const place of await placesOf(seeSelf(on, one), locked)) selves.add(place)
  }
  const ready = locked.filter((place) => !selves.has(place))
  await mergeReady(merging, ready, clears)
  await dropChanged(
    merging,
    places.filter((place) => !seen.has(place) && !locked.includes(place)),
  )
  const busy = [...seen].filter((place) => !locked.includes(place)).length
  return { busy, merged: ready.length, selves: [...selves] }
}

async function mergeReady(merging: Merging, ready: readonly string[], first: boolean): Promise<void> {
  const { session, target, references, clears, conflicts } = merging
  const { on } = target
  if (ready.length === 0) return
  await session.query(logRows(on), [ready, on.table.guard])
  for (const one of references) {
    if (first) for (const place of ready) await conflicts.clear(place, one)
    await session.query(repoint(on, one), [ready, on.table.guard, JSON.stringify(one)])
    const [still] = await session.query<{ n: string }>(stillReferring(on, one), [ready])
    if (still?.n !== '0') throw new AdoptionError('changed', `A trigger undoes references of ${one.table}. Disable it.`)
  }
  await session.query(deleteRows(on), [ready])
  if (merging.decides) await setAll(merging, ready)
  if (clears) {
    await session.set('session_replication_role', 'replica')
    await session.query(clearFlags(on), [ready])
    await session.set('session_replication_role', 'origin')
  }
  await session.query(dropPlaces(on), [ready])
}
