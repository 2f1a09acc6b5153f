import type { DataSource, EntityTarget, ObjectLiteral } from 'typeorm'
import { findChains, lockChains, numberChains, writeNumbers } from '../sql/adopt-chains'
import { fillPages } from '../sql/adopt-fill'
import {
  addChecks,
  analyzeTable,
  createAdoptions,
  createIndex,
  disableTriggers,
  endAdoption,
  type LockMode,
  requireColumns,
  vacuumTable,
  validateChecks,
} from '../sql/adopt-table'
import { type Swap, swapGuards } from '../triggers/adopt-swap'
import { beginAdoption, createObjects } from '../triggers/adopt-triggers'
import { checkOptions } from '../options'
import { guardOf } from '../triggers/guard'
import type { AdoptOptions } from './adopt'
import { PROPERTY } from './options'
import { withSession } from './session'
import type { AdoptStep, PlannedStep } from './steps'
import { targetOf } from './swap'
import { findDeclaration, findTarget, type Target } from './target'
import { planWork } from './work'
import { findWork } from './works'

/**
 * Returns the steps of an adoption with their SQL. Changes nothing.
 *
 * @throws AdoptionError if there is no such table
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export async function planAdoption(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: Pick<AdoptOptions, 'property'> = {},
): Promise<PlannedStep[]> {
  checkOptions('planAdoption()', options, PROPERTY)
  const find = findWork(dataSource, entity, options.property)
  if (find) return await planWork(dataSource, find)
  const declaration = findDeclaration(dataSource, entity, options.property)
  return await withSession(dataSource, {}, {}, async (session) =>
    stepsOf(targetOf(await findTarget(declaration, session.query))),
  )
}

/** The columns that become NOT NULL when the new guard stands. */
function requiredLate({ tightened, final: { table } }: Swap): string[] {
  const hash = tightened.length === 0 || table.nullable ? [] : [table.hash]
  return [...tightened, ...hash]
}

export function stepsOf(target: Target): PlannedStep[] {
  const { on, hidden, required, state, swap } = target
  const late = swap ? requiredLate(swap) : []
  const standing = new Set(state.columns.map(({ name }) => name))
  const hasCheck = state.checks.some(({ name }) => name === on.table.check)
  const free = (step: AdoptStep, statements: readonly string[]): PlannedStep => ({ step, lock: undefined, statements })
  const locked = (step: AdoptStep, lock: LockMode, statements: readonly string[]): PlannedStep => ({
    step,
    lock,
    statements,
  })
  return [
    free('begin', [...createAdoptions(on), ...createObjects(on)]),
    locked('begin', 'ACCESS EXCLUSIVE', beginAdoption(on, hidden, standing)),
    free('fill', [fillPages(on, { from: 0, to: 16 }, 'missing', false), vacuumTable(on)]),
    free('number', [...findChains(on), numberChains(on)]),
    free('index', [createIndex(on)]),
    locked('check', 'ACCESS EXCLUSIVE', addChecks(on, required, !hasCheck)),
    free('check', [validateChecks(on, required)]),
    locked('check', 'ACCESS EXCLUSIVE', requireColumns(on, required)),
    free('guard', [lockChains(on), writeNumbers(on)]),
    ...(swap
      ? [
          locked('guard', 'ACCESS EXCLUSIVE', swapGuards(on, swap)),
          locked('clean', 'ACCESS EXCLUSIVE', addChecks(swap.final, late, false)),
          free('clean', late.length === 0 ? [] : [validateChecks(swap.final, late)]),
          locked('clean', 'ACCESS EXCLUSIVE', [...requireColumns(swap.final, late), ...endAdoption(on)]),
        ]
      : [
          locked('guard', 'SHARE ROW EXCLUSIVE', [...guardOf(on.table).create, disableTriggers(on)]),
          locked('clean', 'ACCESS EXCLUSIVE', endAdoption(on)),
        ]),
    free('clean', [analyzeTable(on)]),
  ].filter(({ statements }) => statements.length > 0)
}
