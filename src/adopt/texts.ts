import type { ObjectLiteral } from 'typeorm'
import { addCheck, createIndex, uniqueIndexOf } from '../sql/alter'
import { findDrift } from '../schema/readiness'
import { addLookup } from '../sql/catalog'
import { literal, qualified, quote } from '../sql/identifier'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { field, isFreed, isLive, rowHash, tableName, textIsNull } from '../sql/text-table'
import { createPlan, detach, dropPlan, ensureLibrary } from '../sql/library'
import { guardOf } from '../triggers/guard'
import {
  chainColumns,
  dropNumbered,
  type Filled,
  findChains,
  moveTexts,
  newHash,
  numberChains,
  settleChains,
  settleMost,
  settleRest,
  TEXT_BATCH,
} from './chains'
import { guardedAs, noteOf, refuseLost, refuseTaken, refuseTarget } from './guarded'
import type { AdoptStep, PlannedStep } from './options'
import {
  alterTexts,
  createRefused,
  FIRST_LINES,
  inLines,
  isUnfilled,
  isWanted,
  normalizeRow,
  normalizeRows,
  LINES,
  type Lines,
  pagesOf,
  readTexts,
  refusedKey,
  refusedTexts,
  refuseListed,
  renormalize,
  sweepPages,
  valuesOfChanges,
  writeChanges,
} from './pages'
import { againstOwn, KEYS_NAMED } from './refusals'
import { AdoptionError, type AdoptSession } from './session'
import {
  type AdoptedTable,
  alterTable,
  analyzeTable,
  FIRST_TEMPORARY_NUMBER,
  keyAsJson,
  nameOf,
  nextNumber,
  numbersOf,
  own,
  ownAlone,
  queueOf,
  refusedOf,
  same,
  samePrimary,
  sameTexts,
  type Wanted,
  vacuumTable,
  worklistOf,
} from './table'
import type { Target } from './target'
import { adoptions, beginState, createAdoptions, finishWork, forgetState, goOn } from './state'
import { type AdoptRun, throughPlaces, wouldFire } from './work'

/** Creates the unique index as TypeORM does, while others write. */
const createTextIndex = ({ table }: AdoptedTable): string =>
  createIndex(tableName(table), quote(table.index), uniqueIndexOf(table), 'CONCURRENTLY ')

/** The ends of the names of the transitional triggers. */
const TRIGGERS = ['place_insert', 'place_update', 'note_insert', 'note_update', 'note_delete'] as const

/** Attaches the guard, and disables the transitional triggers. To drop one takes a lock that blocks readers. */
const changeOver = (on: AdoptedTable): string[] => [
  guardOf(on.table).attach,
  ...alterTable(
    on,
    TRIGGERS.map((suffix) => `DISABLE TRIGGER ${quote(nameOf(on, suffix))}`),
  ),
]

const dropObjects = (on: AdoptedTable): string[] => [
  `DROP TABLE IF EXISTS ${queueOf(on)}, ${worklistOf(on)}`,
  `DROP SEQUENCE IF EXISTS ${numbersOf(on)}`,
]

/** Drops everything that only the adoption needed. */
const dropTemporary = (on: AdoptedTable): string[] => [dropPlan(on.table, 'adopt', on.table.name), ...dropObjects(on)]

/** Drops guard, columns, index and check, and the remains of an adoption. @throws AdoptionError */
export function dropAll(target: Target): string[] {
  const { table, stored, declaration, state } = target
  if (!stored && guardedAs(target) === 'none') refuseTaken(target)
  const columns = [table.hash, table.number, table.chained].map((name) => `DROP COLUMN IF EXISTS ${quote(name)}`)
  return [
    // Without triggers, perhaps nothing has made the library.
    ...(state.triggers.length === 0
      ? dropObjects(target)
      : [ensureLibrary(table.schema, 'texts'), guardOf(table).detach, ...dropTemporary(target)]),
    `DROP TABLE IF EXISTS ${refusedOf(target)}`,
    ...(declaration.lookup === undefined
      ? []
      : [`DROP INDEX IF EXISTS ${qualified(table.schema, declaration.lookup)}`]),
    ...alterTable(target, [...dropFilled(target, table.text.length + table.scope.length + columns.length), ...columns]),
  ]
}

const filledName = (on: AdoptedTable, column: number): string => nameOf(on, `filled_${column}`)

/** Clauses that drop the checks that prove NOT NULL, of so many columns, if they exist. */
const dropFilled = (on: AdoptedTable, columns: number): string[] =>
  Array.from({ length: columns }, (_, index) => `DROP CONSTRAINT IF EXISTS ${quote(filledName(on, index))}`)

/**
 * Writes the hashes of the rows of these pages. If the normalizer changed a text, and the row still has the old text,
 * the new text is written too. Rows that others have locked are left for another sweep. Returns how many rows needed a
 * write and how many of them were written, and stores the progress of the sweep.
 *
 * @param changes whether texts changed; $3 are their spots, and the old and new texts of each column follow
 */
function fillPages(on: AdoptedTable, lines: Lines, wanted: Wanted, changes: boolean): string {
  const { table } = on
  const hash = quote(table.hash)
  const lock = 'FOR NO KEY UPDATE'
  const other = changes ? ' AND NOT (t.ctid OPERATOR(pg_catalog.=) ANY ($3::pg_catalog.tid[]))' : ''
  const where = `${inLines(lines)} AND ${isWanted(on, wanted)}${other}`
  const changed =
    wanted === 'missing'
      ? alterTexts(on, 3, lock, [`${hash} = ${newHash(on)}`], isUnfilled(on))
      : moveTexts(on, 3, lock)
  return `WITH seen AS (SELECT pg_catalog.count(*) AS n FROM ${own(on)} WHERE ${where}),
held AS MATERIALIZED (SELECT t.ctid AS spot FROM ${own(on)} WHERE ${where} ${lock} SKIP LOCKED),
written AS (
  UPDATE ${own(on)} SET ${hash} = ${rowHash(table, 't')}
    FROM held WHERE t.ctid OPERATOR(pg_catalog.=) held.spot AND ${inLines(lines)} RETURNING 1),
${changes ? `${changed},\n` : ''}stored AS (
  UPDATE ${adoptions(on)} AS a SET state = a.state OPERATOR(pg_catalog.||) $2::pg_catalog.jsonb
   WHERE a.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text)
SELECT ((SELECT n FROM seen)${changes ? ' OPERATOR(pg_catalog.+) pg_catalog.cardinality($3::pg_catalog.tid[])' : ''})::pg_catalog.text AS seen,
       ((SELECT pg_catalog.count(*) FROM written)${changes ? ' OPERATOR(pg_catalog.+) (SELECT pg_catalog.count(*) FROM altered)' : ''})::pg_catalog.text AS written`
}

/** Creates the objects that the transitional triggers need. Does not lock the table itself. */
function createObjects(on: AdoptedTable): string[] {
  const { table } = on
  const scope = table.scope.map((name, index) => `t.${quote(name)} AS s${index}, `).join('')
  return [
    ensureLibrary(table.schema, 'texts'),
    // A restored backup may lack the state of an adoption, but have its triggers.
    ...dropTemporary(on),
    `CREATE SEQUENCE ${numbersOf(on)} AS pg_catalog.int4 MINVALUE ${FIRST_TEMPORARY_NUMBER}`,
    `CREATE TABLE ${queueOf(on)} AS SELECT ${scope}NULL::pg_catalog.${table.digest.type} AS hash ` +
      `FROM ${tableName(table)} AS t WITH NO DATA`,
    `ALTER TABLE ${queueOf(on)} ADD seq pg_catalog.int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ` +
      `ADD numbered pg_catalog.bool NOT NULL DEFAULT false`,
    ...createRefused(on),
    ownAlone(on, [numbersOf(on), queueOf(on)]),
  ]
}

/** Gives every row that a client writes its hash at once, and a number of its own until its chain is settled. */
function placingBody(on: AdoptedTable): string {
  const { table } = on
  const textless = table.nullable ? [textIsNull(table, 'NEW').join(' AND ')] : []
  const unnumbered = [...textless, ...isFreed(table, 'NEW')]
  const next =
    unnumbered.length === 0 ? nextNumber(on) : `CASE WHEN ${unnumbered.join(' OR ')} THEN 0 ELSE ${nextNumber(on)} END`
  return `
BEGIN
  ${field('NEW', table.hash)} := ${rowHash(table, 'NEW')};
  ${field('NEW', table.number)} := ${next};
  ${field('NEW', table.chained)} := false;
  RETURN NEW;
END
`
}

/** Notes the chain that a row joined, and the one that an anchor left. */
function noteBody(on: AdoptedTable, stayed: string): string {
  const { table } = on
  const note = (row: string): string => {
    const values = [...table.scope, table.hash].map((name) => field(row, name)).join(', ')
    return `INSERT INTO ${queueOf(on)} (${chainColumns(on)}) VALUES (${values});`
  }
  const [was, is] = [field('OLD', table.number), field('NEW', table.number)]
  return `
BEGIN
  IF TG_OP <> 'DELETE' AND ${field('NEW', table.hash)} IS NOT NULL AND ${is} >= ${FIRST_TEMPORARY_NUMBER}
      AND (TG_OP = 'INSERT' OR ${was} <> ${is}) THEN
    ${note('NEW')}
  END IF;
  IF TG_OP <> 'INSERT' AND ${field('OLD', table.chained)}
      AND (TG_OP = 'DELETE' OR NOT (${[stayed, ...isLive(table, 'NEW')].join(' AND ')})) THEN
    ${note('OLD')}
  END IF;
  RETURN NULL;
END
`
}

/** Makes the transitional triggers. Only pg_catalog is searched for what they name. */
function createTriggers(on: AdoptedTable): string {
  const { table } = on
  const relation = tableName(table)
  const [oldHash, newHash] = [field('OLD', table.hash), field('NEW', table.hash)]
  const sameChain = [...table.scope, table.hash].map((name) => same(field('OLD', name), field('NEW', name)))
  const restored =
    table.deleted === undefined ? [] : [[...isFreed(table, 'OLD'), ...isLive(table, 'NEW')].join(' AND ')]
  const moved = [`NOT (${[...sameTexts(on, 'OLD', 'NEW'), ...sameChain].join(' AND ')})`, ...restored].join(' OR ')
  const [was, is] = [field('OLD', table.number), field('NEW', table.number)]
  const temporary = `${is} >= ${FIRST_TEMPORARY_NUMBER}`
  const leaves = field('OLD', table.chained)
  // The backfill sets the hash of a row that has none, and a number that it knows to be right.
  const fires: Readonly<Record<(typeof TRIGGERS)[number], readonly [type: number, event: string, when?: string]>> = {
    place_insert: [7, 'BEFORE INSERT'],
    place_update: [19, 'BEFORE UPDATE', `${newHash} IS NULL OR ${oldHash} IS NOT NULL AND (${moved})`],
    note_insert: [5, 'AFTER INSERT', temporary],
    note_update: [17, 'AFTER UPDATE', `${temporary} AND ${was} <> ${is} OR ${leaves}`],
    note_delete: [9, 'AFTER DELETE', leaves],
  }
  return createPlan(table, {
    declaration: { kind: 'adopt', name: table.name },
    guard: nameOf(on, ''),
    main: 7,
    functions: [
      { name: nameOf(on, 'place'), body: placingBody(on) },
      { name: nameOf(on, 'note'), body: noteBody(on, sameChain.join(' AND ')) },
    ],
    triggers: TRIGGERS.map((suffix) => {
      const [type, event, when] = fires[suffix]
      const runs = suffix.startsWith('place_') ? 1 : 2
      const condition = when === undefined ? '' : ` WHEN (${when})`
      return { type, suffix, runs, fires: `${event} ON ${relation} FOR EACH ROW${condition}` }
    }),
  })
}

/** Adds the hidden columns, as constants that rewrite no row, and the transitional triggers. */
function beginAdoption(target: Target): string[] {
  const { table, declaration, state } = target
  const existing = new Set(state.columns.map(({ name }) => name))
  const hidden = [
    { name: table.hash, type: table.digest.type },
    { name: table.number, type: 'integer NOT NULL DEFAULT 0' },
    { name: table.chained, type: 'boolean NOT NULL DEFAULT false' },
  ]
  const added = hidden.filter(({ name }) => !existing.has(name)).map(({ name, type }) => `ADD ${quote(name)} ${type}`)
  return [
    ...alterTable(target, added),
    ...hidden.map(
      ({ name }, index) =>
        `COMMENT ON COLUMN ${tableName(table)}.${quote(name)} IS ${literal(declaration.hidden[index]?.comment ?? '')}`,
    ),
    createTriggers(target),
  ]
}

/** How often a sweep frees the space of old row versions for new ones. Otherwise the heap would double. */
const VACUUMS = 4

const VACUUM_LEAST_PAGES = 1_000

/** How a command adopts a text. */
export interface Way {
  /** The steps. Each can be repeated from its start, and returns the next one. */
  readonly steps: Readonly<Partial<Record<AdoptStep, (run: AdoptRun) => Promise<AdoptStep>>>>
  /** @throws AdoptionError if the steps cannot adopt the table */
  readonly refuse: (target: Target) => void
  /** Keeps the table's own triggers from firing in this session. @throws AdoptionError if that is not possible */
  readonly keepTriggersOut?: (session: AdoptSession, target: Target) => Promise<void>
  readonly plan: (target: Target) => PlannedStep[]
}

/** The way of a text without a guard. */
export const UNGUARDED: Way = {
  steps: { begin, fill, number, index, check, guard, clean },
  refuse: refuseTarget,
  keepTriggersOut,
  plan,
}

async function keepTriggersOut(session: AdoptSession, target: Target): Promise<void> {
  const { facts, table, normalizes } = target
  const { updateTriggers, replicaTriggers, keyColumns } = facts
  if (updateTriggers.length === 0) return
  const key = normalizes ? table.text.find(({ name }) => keyColumns.includes(name)) : undefined
  if (replicaTriggers.length > 0) {
    throw wouldFire(target, `${replicaTriggers.join(', ')} would fire with session_replication_role = replica too`)
  }
  if (key) {
    const why = `${quote(key.name)} is in a foreign key, which is not looked at with session_replication_role = replica`
    throw wouldFire(target, why)
  }
  if (await session.becomeReplica()) return
  throw wouldFire(target, 'the role may not set session_replication_role')
}

/** Adds columns and transitional triggers. After its commit, every written row has its hash. */
async function begin({ session, target }: AdoptRun): Promise<AdoptStep> {
  const { table, state } = target
  await refuseNulls(session, target)
  await beginState(session, target)
  await session.make('begin', createObjects(target))
  // If these columns were made by hand, their values are checked.
  const wanted: Wanted = state.columns.some(({ name }) => name === table.hash) ? 'wrong' : 'missing'
  // If a guard has lost a trigger, its other triggers are dropped.
  const note = noteOf(target)
  const left = note ? [detach(table, note)] : []
  return await session.locked({ on: target, step: 'begin', mode: 'ACCESS EXCLUSIVE' }, async () => {
    await session.all([...left, ...beginAdoption(target)])
    return await goOn(session, target, 'fill', { wanted, page: 0, pages: null })
  })
}

/** @throws AdoptionError with the keys of the first rows with NULL in a column that should be NOT NULL */
async function refuseNulls({ query }: AdoptSession, target: Target): Promise<void> {
  const { table, required, state } = target
  const columns = required.filter((name) => name !== table.hash && state.columns.some((one) => one.name === name))
  for (const column of columns) {
    const rows = await query<{ key: string }>(
      `SELECT ${keyAsJson(target)}::pg_catalog.text AS key FROM ${own(target)} WHERE ${field('t', column)} IS NULL LIMIT ${KEYS_NAMED}`,
    )
    if (rows.length === 0) continue
    throw new AdoptionError(
      'nulls',
      `Rows of ${tableName(table)} hold NULL in ${quote(column)}. Give them a value or delete them, or declare the ` +
        `property nullable. --json prints the keys of the first.`,
      undefined,
      rows.map(({ key }) => JSON.parse(key) as ObjectLiteral),
    )
  }
}

/** Sweeps until no row is left. Rows that another session had locked are swept again. */
async function fill({ session, options, counts, target }: AdoptRun): Promise<AdoptStep> {
  const { table, stored, normalizes } = target
  let { wanted, page, pages } = { wanted: 'missing' as Wanted, page: 0, pages: null as number | null, ...stored }
  for (let sweeps = 1; ; sweeps += 1) {
    const sweep = { wanted, page, pages: pages ?? (await pagesOf(session, target)) }
    const vacuumed = Math.max(VACUUM_LEAST_PAGES, Math.ceil(sweep.pages / VACUUMS))
    const before = counts.filled
    let last = page
    const left = await sweepPages(
      session,
      target,
      sweep,
      async (part) => {
        const changes = normalizes
          ? await normalizeRows(session, target, await session.query(readTexts(target, part, wanted)))
          : []
        const state = JSON.stringify({ wanted, page: Math.floor(part.to / LINES), pages: sweep.pages })
        const given = changes.length > 0 ? valuesOfChanges(target, changes) : []
        const sql = fillPages(target, part, wanted, changes.length > 0)
        const [row] = await session.query<Filled>(sql, [table.guard, state, ...given])
        counts.filled += Number(row?.written ?? 0)
        counts.normalized += changes.length
        return Number(row?.seen ?? 0) - Number(row?.written ?? 0)
      },
      async (next) => {
        options.onProgress?.({ step: 'fill', fraction: next / Math.max(sweep.pages, 1), rows: counts.filled })
        if (Math.floor(next / vacuumed) > Math.floor(last / vacuumed)) await session.query(vacuumTable(target))
        last = next
      },
    )
    await session.query(vacuumTable(target))
    if (left === 0 && page === 0) return await goOn(session, target, 'number')
    if (counts.filled === before) await session.rest(sweeps)
    ;[page, pages] = [0, null]
    await goOn(session, target, 'fill', { page, pages })
  }
}

/** Gives rows of equal hash the numbers 0, 1, 2 …, duplicates too, so that the index cannot fail. */
async function number({ session, counts, target }: AdoptRun): Promise<AdoptStep> {
  await session.all(findChains(target))
  await throughPlaces(session, TEXT_BATCH, async (last, limit) => {
    const [row] = await session.patiently(
      'number',
      async () => await session.query<Filled & { last: string | null }>(numberChains(target), [last, limit]),
    )
    const [seen, written] = [Number(row?.seen ?? 0), Number(row?.written ?? 0)]
    counts.numbered += written
    return { seen, last: row?.last ?? last, stuck: seen - written }
  })
  return await goOn(session, target, 'index')
}

async function index({ session, target }: AdoptRun): Promise<AdoptStep> {
  const { table, state } = target
  const isThere = findDrift(table, state).every(({ object, name }) => object !== 'index' || name !== table.index)
  try {
    if (!isThere) await makeIndex(session, target, table.index, createTextIndex(target))
  } catch (error) {
    if (serverError(error)?.code !== SQLSTATE.uniqueViolation) throw error
    await session.query(dropIndex(target, table.index))
    // A client wrote numbers by hand.
    return await goOn(session, target, 'number')
  }
  const [create, ...comment] = createLookup(target)
  const { lookup } = target.declaration
  if (lookup !== undefined && create !== undefined && !state.indexes.some((one) => one.name === lookup && one.valid)) {
    await makeIndex(session, target, lookup, create)
    await session.all(comment)
  }
  return await goOn(session, target, 'check')
}

/** Creates the index that finds texts by their hashes, and its comment, if the text has one. */
function createLookup({ table: rows, declaration: { lookup: name } }: Target): readonly string[] {
  if (name === undefined) return []
  return addLookup({ rows, name, column: rows.text[0]?.name ?? '' }, 'CONCURRENTLY ').up
}

const dropIndex = ({ table }: AdoptedTable, name: string): string =>
  `DROP INDEX CONCURRENTLY IF EXISTS ${qualified(table.schema, name)}`

/** Makes an index while others write, and replaces an invalid one that an earlier run has left. */
async function makeIndex(session: AdoptSession, on: AdoptedTable, name: string, create: string): Promise<void> {
  for (;;) {
    await session.query(dropIndex(on, name))
    try {
      await session.query(create)
      return
    } catch (error) {
      // The deadlock is with another index that is made at the same time.
      if (serverError(error)?.code !== SQLSTATE.deadlockDetected) throw error
    }
  }
}

/** The statements that make columns NOT NULL, and add the check of the text. */
function requireColumns(target: Target) {
  const { table, required, state } = target
  const isThere = state.checks.some(({ name }) => name === table.check)
  const [ownCheck = ''] = addCheck(table).up
  const filled = required.map((_, index) => quote(filledName(target, index)))
  return {
    /** Adds checks for rows that are written from now on. One statement locks the table once. */
    add: alterTable(target, [
      ...required.flatMap((name, index) => [
        `DROP CONSTRAINT IF EXISTS ${filled[index]}`,
        `ADD CONSTRAINT ${filled[index]} CHECK (${quote(name)} IS NOT NULL) NOT VALID`,
      ]),
      ...(isThere ? [] : [`${ownCheck.slice(ownCheck.indexOf('ADD CONSTRAINT'))} NOT VALID`]),
    ]),
    /** Validates the checks. The server reads the table once, while others read and write. */
    validate: alterTable(
      target,
      [...filled, quote(table.check)].map((name) => `VALIDATE CONSTRAINT ${name}`),
    ),
    /** The valid checks prove that no row has NULL. In one statement, they would be dropped before they are used. */
    require: [
      ...alterTable(
        target,
        required.map((name) => `ALTER COLUMN ${quote(name)} SET NOT NULL`),
      ),
      ...alterTable(target, dropFilled(target, required.length)),
    ],
  }
}

/** Adds checks as NOT VALID, validates them in one scan that blocks nobody, and then requires the columns. */
async function check({ session, target }: AdoptRun): Promise<AdoptStep> {
  const { add, validate, require } = requireColumns(target)
  const lock = { on: target, step: 'check', mode: 'ACCESS EXCLUSIVE' } as const
  if (add.length > 0) await session.locked(lock, async () => await session.all(add))
  try {
    await session.all(validate)
  } catch (error) {
    if (serverError(error)?.code !== SQLSTATE.checkViolation) throw error
    await refuseNulls(session, target)
    // A row without its hash, or with another hash, was written past the triggers.
    return await goOn(session, target, 'fill', { wanted: 'wrong', page: 0, pages: null })
  }
  if (require.length === 0) return await goOn(session, target, 'guard')
  return await session.locked(lock, async () => {
    for (const statement of require) await session.query(statement)
    return await goOn(session, target, 'guard')
  })
}

/** After the commit of its last transaction, no text is stored twice. */
async function guard(run: AdoptRun): Promise<AdoptStep> {
  const { session, target } = run
  await reviewRefused(run)
  await refuseListed(run)
  // This uses the unique index, which does not exist while the notes are made.
  await session.patiently('index', async () => await session.query(dropNumbered(target)))
  await session.make('guard', [ensureLibrary(target.table.schema, 'texts')])
  const prepare = async (): Promise<void> => await settleMost(run)
  return await session.locked({ on: target, step: 'guard', mode: 'SHARE ROW EXCLUSIVE', prepare }, async (inTime) => {
    await settleRest(session, target)
    inTime()
    await session.all(changeOver(target))
    return await goOn(session, target, 'clean')
  })
}

/** Removes corrected and deleted rows from the list of refused rows. Deletes the others if the caller wants that. */
async function reviewRefused({ session, options, target }: AdoptRun): Promise<void> {
  const rows = await session.query<Readonly<Record<string, string | null>>>(refusedTexts(target))
  const refused = rows.filter((row) => 'refused' in normalizeRow(target, row))
  if (options.rejected === 'delete' && refused.length > 0) {
    const spots = refused.map(({ spot }) => spot)
    const remove = async () =>
      await session.query(
        `DELETE FROM ${own(target)} USING ${refusedOf(target)} AS r WHERE ${samePrimary(target, 'r.k')} ` +
          `AND t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])`,
        [spots],
      )
    await session.asOrigin(remove).catch((error: unknown) =>
      againstOwn(error, {
        on: target.table,
        what: 'to delete a row whose text the normalizer refuses',
        next: 'Delete or change what refers to it, or keep it with --rejected keep',
        ours: [],
      }),
    )
  }
  // By key, because a row that a client has written to meanwhile is at another place.
  await session.query(
    `DELETE FROM ${refusedOf(target)} AS r WHERE NOT (${refusedKey(target)} OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.jsonb[]) ` +
      `AND EXISTS (SELECT FROM ${own(target)} WHERE ${samePrimary(target, 'r.k')}))`,
    [refused.map(({ key }) => key)],
  )
}

async function clean({ session, target }: AdoptRun): Promise<AdoptStep> {
  await finishWork(session, target, 'clean', dropTemporary(target))
  await session.query(analyzeTable(target))
  return 'done'
}

function plan(target: Target): PlannedStep[] {
  const { add, validate, require } = requireColumns(target)
  const exclusive = 'ACCESS EXCLUSIVE'
  const steps: readonly PlannedStep[] = [
    { step: 'begin', lock: undefined, statements: [...createAdoptions(target), ...createObjects(target)] },
    { step: 'begin', lock: exclusive, statements: beginAdoption(target) },
    {
      step: 'fill',
      lock: undefined,
      statements: [fillPages(target, FIRST_LINES, 'missing', false), vacuumTable(target)],
    },
    { step: 'number', lock: undefined, statements: [...findChains(target), numberChains(target)] },
    { step: 'index', lock: undefined, statements: [createTextIndex(target), ...createLookup(target)] },
    { step: 'check', lock: exclusive, statements: add },
    { step: 'check', lock: undefined, statements: validate },
    { step: 'check', lock: exclusive, statements: require },
    { step: 'guard', lock: undefined, statements: [settleChains(target)] },
    { step: 'guard', lock: 'SHARE ROW EXCLUSIVE', statements: changeOver(target) },
    { step: 'clean', lock: exclusive, statements: dropTemporary(target) },
    { step: 'clean', lock: undefined, statements: [analyzeTable(target)] },
  ]
  return steps.filter(({ statements }) => statements.length > 0)
}

/**
 * The way of a text whose rows are normalized again under its guard. The guard is kept, so that no text is stored twice
 * meanwhile. If another row holds the normalized text of a row, that row is noted with the refused rows.
 */
export const GUARDED: Way = {
  steps: { begin: beginAgain, fill: fillAgain, guard: guardAgain },
  refuse: refuseLost,
  plan: (target) => [
    { step: 'begin', lock: undefined, statements: createAdoptions(target) },
    {
      step: 'fill',
      lock: undefined,
      statements: [...createRefused(target), readTexts(target, FIRST_LINES, 'wrong'), renormalize(target)],
    },
    { step: 'guard', lock: 'ACCESS EXCLUSIVE', statements: guardOf(target.table).create },
  ],
}

async function beginAgain({ session, target }: AdoptRun): Promise<AdoptStep> {
  await beginState(session, target, { renormalizes: true })
  await session.all(createRefused(target))
  return await goOn(session, target, 'fill', { page: 0, pages: 0 })
}

/**
 * Sweeps until no row is left. The next step is not stored. A run that stops there begins a new sweep, because refused
 * texts may have been corrected.
 */
async function fillAgain(run: AdoptRun): Promise<AdoptStep> {
  const { session, target } = run
  const { stored } = target
  let page = stored && stored.page < (stored.pages ?? 0) ? stored.page : 0
  if (page === 0) await session.all(createRefused(target))
  for (let sweeps = 1; ; sweeps += 1) {
    const left = await sweepAgain(run, page).catch(async (error: unknown) => {
      // Nothing was written, so the table stays adopted.
      const isRefused = error instanceof AdoptionError && error.reason === 'user-triggers'
      if (isRefused) await forgetState(session, target)
      throw error
    })
    if (left === 0 && page === 0) return 'guard'
    if (left > 0) await session.rest(sweeps)
    page = 0
  }
}

/** Normalizes the rows of all pages from a given page on. @returns how many rows were locked, or changed meanwhile */
async function sweepAgain({ session, options, counts, target }: AdoptRun, page: number): Promise<number> {
  const pages = await pagesOf(session, target)
  return await sweepPages(
    session,
    target,
    { wanted: 'wrong', page, pages },
    async (part) => {
      const changes = await normalizeRows(session, target, await session.query(readTexts(target, part, 'wrong')))
      if (changes.length > 0 && target.facts.updateTriggers.length > 0 && options.userTriggers !== 'fire')
        throw wouldFire(target, 'the guard has to run')
      const { rows, refused } = await writeChanges(session, target, changes)
      counts.normalized += rows
      return changes.length - rows - refused
    },
    async (next) => {
      await goOn(session, target, 'fill', { page: next, pages })
      options.onProgress?.({ step: 'fill', fraction: next / pages, rows: counts.normalized })
    },
  )
}

/** Replaces the guard with that of the declaration, if they differ. */
async function guardAgain(run: AdoptRun): Promise<AdoptStep> {
  const { session, target } = run
  await refuseListed(run)
  if (target.isReady) await forgetState(session, target)
  else await finishWork(session, target, 'guard', guardOf(target.table).create)
  return 'done'
}
