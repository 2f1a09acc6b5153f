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
import { beginAdoption, createObjects } from '../sql/adopt-triggers'
import { checkOptions } from '../options'
import { guardOf } from '../sql/guard'
import type { AdoptOptions } from './adopt'
import { PROPERTY_RULES } from './options'
import { withSession } from './session'
import type { AdoptStep, PlannedStep } from './steps'
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
  checkOptions('planAdoption()', options, PROPERTY_RULES)
  const find = findWork(dataSource, entity, options.property)
  if (find) return await planWork(dataSource, find)
  const declaration = findDeclaration(dataSource, entity, options.property)
  return await withSession(dataSource, {}, {}, async (session) => stepsOf(await findTarget(declaration, session.query)))
}

export function stepsOf(target: Target): PlannedStep[] {
  const { on, hidden, required, state } = target
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
    locked('guard', 'SHARE ROW EXCLUSIVE', [...guardOf(on.table).create, disableTriggers(on)]),
    locked('clean', 'ACCESS EXCLUSIVE', endAdoption(on)),
    free('clean', [analyzeTable(on)]),
  ].filter(({ statements }) => statements.length > 0)
}
