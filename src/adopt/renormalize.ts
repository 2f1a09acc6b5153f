import { quote } from '../sql/identifier'
import { isBusyError, serverError, SQLSTATE } from '../sql/sqlstate'
import { guardOf } from '../triggers/guard'
import { planAllFunctions, planSets } from '../triggers/plan'
import type { AdoptStep, PlannedStep } from './options'
import { columnsOfChanges, pagesOf, readChanges, reportRefused, sweepPages, type TextChange } from './pages'
import type { AdoptSession } from './session'
import { guardIn } from './sql/swap'
import { createAdoptions } from './sql/table'
import { createRefused, readTexts, renormalize } from './sql/texts'
import { ownConstraint, type Target } from './target'
import { refuseListed, TextWork } from './texts'
import { beginState, finishWork, goOn, type WorkRun } from './work'

/**
 * A text whose rows are normalized again under its guard. The guard is kept, so that no text is stored twice meanwhile.
 * If another row holds the normalized text of a row, that row is noted with the refused rows.
 */
export class GuardedText extends TextWork {
  override readonly writes = { under: 'the guard has to run' }

  refuse(): void {
    // Every table that has the guard can be normalized.
  }

  async begin(run: WorkRun): Promise<AdoptStep> {
    await beginState(run, this, { renormalizes: true })
    await run.session.all(createRefused(this.on))
    return await goOn(run.session, this.on, 'fill', { page: 0, pages: 0 })
  }

  /**
   * Sweeps until no row is left. The next step is not stored. A run that stops there begins a new sweep, because
   * refused texts may have been corrected.
   */
  async fill(run: WorkRun): Promise<AdoptStep> {
    const { session } = run
    const { on, state } = this
    let page = state && state.page < (state.pages ?? 0) ? state.page : 0
    if (page === 0) await session.all(createRefused(on))
    for (let sweeps = 1; ; sweeps += 1) {
      const left = await normalizeAll(run, this.target, page, async (next, pages) => {
        await goOn(session, on, 'fill', { page: next, pages })
        return false
      })
      if (left === 0 && page === 0) return 'guard'
      if (left > 0) await session.rest(sweeps)
      page = 0
    }
  }

  /** Replaces the guard with that of the new declaration. */
  async guard(run: WorkRun): Promise<AdoptStep> {
    const { session } = run
    const { on } = this
    await refuseListed(run, this.target)
    await finishWork(session, on, 'guard', this.changeGuard())
    return 'done'
  }

  private changeGuard(): string[] {
    const { on, state } = this.target
    const wanted = guardOf(on.table)
    // Other texts, names and numbers of the table keep their triggers and functions.
    const installed = guardIn(state, on, wanted.note)
    const site = { schema: on.table.schema, table: on.table.table, wanted: [wanted], installed }
    const placed = { ...site, searchSchema: on.table.schema, touched: false, isNew: false }
    const { before, after } = planSets(placed)
    return [...before.up, ...planAllFunctions([placed], [], []).before.up, ...after.up]
  }

  plan(): PlannedStep[] {
    const { on } = this
    const first = { from: 0, to: 16 }
    return [
      { step: 'begin', lock: undefined, statements: createAdoptions(on) },
      {
        step: 'fill',
        lock: undefined,
        statements: [...createRefused(on), readTexts(on, first, 'wrong'), renormalize(on)],
      },
      { step: 'guard', lock: 'ACCESS EXCLUSIVE', statements: this.changeGuard() },
    ]
  }
}

/**
 * Normalizes the rows of all pages from a given page on.
 *
 * @param onBatch called with the next page; returns whether to stop
 * @returns how many rows are left because another session had locked them or they changed
 */
export async function normalizeAll(
  run: WorkRun,
  target: Target,
  from: number,
  onBatch: (page: number, pages: number) => Promise<boolean> | boolean,
): Promise<number> {
  const { session, counts, onProgress } = run
  const pages = await pagesOf(session, target)
  return await sweepPages(
    session,
    target,
    { wanted: 'wrong', page: from, pages },
    async (part) => {
      const changes = await readChanges(session, target, part, 'wrong')
      const written = await writeChanges(session, target, changes)
      counts.normalized += written.rows
      return changes.length - written.rows - written.refused.size
    },
    async (page) => {
      const ends = await onBatch(page, pages)
      onProgress({ step: 'fill', fraction: page / pages, rows: counts.normalized })
      return ends
    },
  )
}

/** The results for some rows. The others are locked, or have another text now. */
interface NormalizedRows {
  readonly rows: number
  /** The reasons, by the spots of the rows. These rows are noted. */
  readonly refused: ReadonlyMap<string, string>
}

/** Writes all changes at once, or one by one if one of them is refused. */
export async function writeChanges(
  session: AdoptSession,
  target: Target,
  changes: readonly TextChange[],
): Promise<NormalizedRows> {
  const none = { rows: 0, refused: new Map<string, string>() }
  const [first, ...others] = changes
  if (!first) return none
  const { on } = target
  try {
    const values = [changes.map(({ spot }) => spot), ...columnsOfChanges(target, changes)]
    const [row] = await session.together(async () => await session.query<{ written: string }>(renormalize(on), values))
    return { ...none, rows: Number(row?.written ?? 0) }
  } catch (error) {
    if (isBusyError(error)) return none
    const reason = refusalOfText(error)
    if (reason === undefined) throw error
    if (others.length === 0) {
      await reportRefused(session, target, [{ spot: first.spot, reason }])
      return { rows: 0, refused: new Map([[first.spot, reason]]) }
    }
    let rows = 0
    for (const one of changes) {
      const written = await writeChanges(session, target, [one])
      rows += written.rows
      for (const [spot, why] of written.refused) none.refused.set(spot, why)
    }
    return { rows, refused: none.refused }
  }
}

/** The reason why the database refuses a text; undefined if the error does not concern the row. */
function refusalOfText(error: unknown): string | undefined {
  const { code, constraint = '' } = serverError(error) ?? {}
  if (code === SQLSTATE.uniqueViolation) return `another row holds its normalized text (${quote(constraint)})`
  if (code === SQLSTATE.immutableText) return 'it is immutable'
  const refuses = ownConstraint(error, []) ?? 'the database'
  // P0 is an error of the user's trigger.
  return /^(?:23|P0)/.test(code ?? '') ? `${refuses} refuses it normalized (SQLSTATE ${code})` : undefined
}
