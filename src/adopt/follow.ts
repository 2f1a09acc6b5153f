import type { DataSource, EntityTarget, ObjectLiteral } from 'typeorm'
import { checkOptions, RULE, type Rules } from '../options'
import { literal, quote } from '../sql/identifier'
import { field, tableName } from '../sql/text-table'
import { makeFunctions } from '../sql/trigger-set'
import {
  type AdoptOptions,
  BATCH_RULES,
  type BatchOption,
  HOLD_RULES,
  type HoldOption,
  LOCK_RULES,
  type LockOption,
} from './options'
import {
  createRefused,
  normalizeAll,
  readTextsOf,
  refusedRows,
  type RefusedSpot,
  reportRefused,
  selectTexts,
  type TextChange,
  writeChanges,
} from './pages'
import { type AdoptSession } from './session'
import {
  type AdoptedTable,
  type Adopting,
  functionOf,
  HAS_TURN,
  keyAsJson,
  nameOf,
  objectOf,
  own,
  ownAlone,
  samePrimary,
  sameTexts,
  type TextSite,
} from './table'
import { normalizeStored, requireAdopted } from './refusals'
import { withText, type Target } from './target'
import type { RefusedRow, WorkRun } from './work'

/** The rows that clients have written, by primary key (`k0`, …), in the order of `seq`. */
const writtenOf = (on: TextSite): string => objectOf(on, 'written')

/** The setting of the session that follows the writers. Its own writes are not noted. */
const FOLLOWS = 'unique_text.follows'

/** Creates the objects that the triggers need. Does not lock the table itself. */
function createWritten(on: AdoptedTable): string[] {
  const [columns, values] = [on.primary.map((_, index) => `k${index}`), on.primary.map((name) => field('NEW', name))]
  const body = `
BEGIN
  IF coalesce(pg_catalog.current_setting('${FOLLOWS}', true), '') OPERATOR(pg_catalog.<>) 'on' THEN
    INSERT INTO ${writtenOf(on)} (${columns.join(', ')}) VALUES (${values.join(', ')});
  END IF;
  RETURN NULL;
END
`
  return [
    `CREATE TABLE ${writtenOf(on)} AS SELECT ${on.primary.map((name, index) => `t.${quote(name)} AS k${index}`).join(', ')} ` +
      `FROM ${tableName(on.table)} AS t WITH NO DATA`,
    `ALTER TABLE ${writtenOf(on)} ADD seq pg_catalog.int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY`,
    ...ownAlone(on, [writtenOf(on)]),
    ...makeFunctions({ fresh: [functionOf(on, 'follow', body)] }),
  ]
}

const FOLLOW_TRIGGERS = ['follow_insert', 'follow_update'] as const

/** Creates the triggers. After their commit, they note every row that gets a text. */
function beginFollowing(on: AdoptedTable): string[] {
  const [insert, update] = FOLLOW_TRIGGERS.map((one) => quote(nameOf(on, one)))
  const run = `FOR EACH ROW EXECUTE FUNCTION ${objectOf(on, 'follow')}()`
  const other = `NOT (${sameTexts(on, 'OLD', 'NEW').join(' AND ')})`
  return [
    `CREATE TRIGGER ${insert} AFTER INSERT ON ${tableName(on.table)} ${run}`,
    `CREATE TRIGGER ${update} AFTER UPDATE ON ${tableName(on.table)} ${run.replace(' EXECUTE', ` WHEN (${other}) EXECUTE`)}`,
  ]
}

/** Drops the objects that note the rows, also after a command was killed. */
export const endFollowing = (on: TextSite): string[] => [
  ...FOLLOW_TRIGGERS.map((one) => `DROP TRIGGER IF EXISTS ${quote(nameOf(on, one))} ON ${tableName(on.table)}`),
  `DROP FUNCTION IF EXISTS ${objectOf(on, 'follow')}()`,
  `DROP TABLE IF EXISTS ${writtenOf(on)}`,
]

/**
 * Selects whether a command works on the table with the OID $1, and whether its rows are noted. A table of notes alone
 * proves nothing, because another role can have made it.
 */
export const findCommand = (on: Pick<Adopting, 'table'>): string =>
  `SELECT ${HAS_TURN} AS running, EXISTS (SELECT FROM pg_catalog.pg_trigger AS t WHERE t.tgrelid OPERATOR(pg_catalog.=) $1::pg_catalog.oid
    AND t.tgname::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY[${FOLLOW_TRIGGERS.map((one) => literal(nameOf(on, one))).join(', ')}])) AS follows`

/** Options of `follow`, like those of `adopt`. */
export interface FollowOptions extends Pick<AdoptOptions, LockOption | HoldOption | BatchOption> {
  /** Once aborted, `follow` drops its triggers and returns. */
  readonly signal: AbortSignal
  /** Called once `follow` notes writes, and after each change, with the number of texts normalized so far. */
  readonly onProgress?: (normalized: number) => void
}

/** The result of `follow`: the texts that other code wrote meanwhile. */
export interface FollowReport {
  /** How many texts were normalized. */
  readonly normalized: number
  /** The first ten rows whose texts could not be normalized: refused, or held by another row once normalized. */
  readonly refused: readonly RefusedRow[]
  /** How many texts the normalizer refused. */
  readonly refusedTotal: number
}

const FOLLOW_RULES: Rules<FollowOptions> = {
  ...LOCK_RULES,
  ...HOLD_RULES,
  ...BATCH_RULES,
  onProgress: RULE.function,
}

const NOTES = 200

const IDLE_MILLISECONDS = 500

/**
 * Normalizes the texts that code without this package writes into an adopted table, until the signal is aborted. It
 * reads the table once, for earlier writes. Your triggers on UPDATE run for the rows that it changes.
 *
 * @throws AdoptionError for a table that is not adopted, and while an adoption is running
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export async function follow(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: FollowOptions,
): Promise<FollowReport> {
  checkOptions('follow()', options, FOLLOW_RULES, ['signal'])
  return await withText(dataSource, entity, options, async (session, target) => {
    requireAdopted(target)
    const counts = { filled: 0, normalized: 0, numbered: 0 }
    const run: WorkRun = { session, options: {}, counts }
    const { on } = target
    await stopFollowing(session, target)
    await session.all([...createRefused(on), ...createWritten(on)])
    await session.locked({ on, step: 'follow', mode: 'SHARE ROW EXCLUSIVE' }, async () => {
      await session.all(beginFollowing(on))
    })
    await session.set(FOLLOWS, 'on')
    // From now on, the signal ends the loop with its cleanup, and not at the next statement.
    session.signal = undefined
    try {
      const { signal, onProgress, onNotice } = options
      onProgress?.(counts.normalized)
      for (let swept = false; !signal.aborted;) {
        const before = counts.normalized
        // Rows that another session has locked are read again.
        if (!swept) swept = (await normalizeAll(run, target, 0, () => signal.aborted)) === 0
        const { normalized, busy } = await settleWritten(session, target, (reason) => onNotice?.(reason))
        counts.normalized += normalized
        if (counts.normalized > before) onProgress?.(counts.normalized)
        if (busy || !swept) await session.breathe()
        if (!busy) await session.sleep(IDLE_MILLISECONDS)
      }
    } finally {
      await session.set(FOLLOWS, 'off')
    }
    await stopFollowing(session, target)
    return { normalized: counts.normalized, ...(await refusedRows(session, target)) }
  })
}

type WrittenRow = Readonly<Record<'seq' | 'spot' | 'key', string>> & Readonly<Record<string, string>>

/** Normalizes the rows that the next notes name. @returns the number of texts, and whether more work is due at once */
async function settleWritten(
  session: AdoptSession,
  target: Target,
  tell: (notice: string) => void,
): Promise<{ readonly normalized: number; readonly busy: boolean }> {
  const { on } = target
  // The first notes, each with its current row. If the row no longer exists, `spot` is NULL.
  const rows = await session.query<WrittenRow>(
    `SELECT q.seq::pg_catalog.text AS seq, t.ctid::pg_catalog.text AS spot, ${keyAsJson(on)}::pg_catalog.text AS key, ${selectTexts(on)} FROM ` +
      `(SELECT * FROM ${writtenOf(on)} AS w ORDER BY w.seq LIMIT $1::pg_catalog.int8) AS q LEFT JOIN ${own(on)} ON ${samePrimary(on, 'q.k')}`,
    [NOTES],
  )
  // Notes without remaining work; rows to write, each with its notes; and refused rows.
  const settled: string[] = []
  const open = new Map<string, TextChange & { readonly key: string; readonly notes: string[] }>()
  const refused: (RefusedSpot & { readonly key: string })[] = []
  for (const row of rows) {
    const { seq, spot, key } = row
    const before = readTextsOf(target, row)
    // A row that was deleted has no text.
    const normalized = normalizeStored(target.declaration.text, before)
    if ('refused' in normalized) refused.push({ spot, key, reason: normalized.refused })
    else if (normalized.changed) {
      const one = open.get(spot) ?? { spot, before, after: normalized.texts, key, notes: [] }
      one.notes.push(seq)
      open.set(spot, one)
      continue
    }
    settled.push(seq)
  }
  const written = await writeChanges(session, target, [...open.values()])
  // Several notes may name one row.
  await reportRefused(session, target, [...new Map(refused.map((one) => [one.spot, one])).values()])
  for (const { key, reason } of refused) tell(`${key} is not normalized: ${reason}`)
  for (const [spot, reason] of written.refused) {
    const one = open.get(spot)
    settled.push(...(one?.notes ?? []))
    tell(`${one?.key} is not normalized: ${reason}`)
  }
  await session.query(
    `DELETE FROM ${writtenOf(on)} AS w WHERE w.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`,
    [settled],
  )
  // A written row is read once more, because it may have changed meanwhile.
  return { normalized: written.rows, busy: settled.length === NOTES || written.rows > 0 }
}

/** Drops the objects of `follow`, if they exist because such a command was killed. */
export async function stopFollowing(session: AdoptSession, { on }: Pick<Target, 'on'>): Promise<void> {
  const [row] = await session.query<{ found: boolean }>(
    `SELECT pg_catalog.to_regclass(${literal(writtenOf(on))}) IS NOT NULL AS found`,
  )
  if (row?.found !== true) return
  await session.locked({ on, step: 'follow', mode: 'ACCESS EXCLUSIVE' }, async () => {
    await session.all(endFollowing(on))
  })
}
