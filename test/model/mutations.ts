/** For each fault a small scenario that catches it, and which the whole guard passes. */
import type { Fault } from './faults'
import { alone } from './combine'
import { ALONE, EMPTY, freedRow, PAIR, TRIPLE, type Scenario } from './scenarios'
import { behind, change, clearFlag, copied, fast, remove, restore, slow, softDelete, twisted, write } from './script'
import type { Isolation, Part } from './script'
import { storedRow, type Row } from './state'

/** Processes of one transaction of one statement each. */
function races(isolation: Isolation, table: readonly Row[], ...statements: readonly (readonly Part[])[]): Scenario {
  const groups = statements.map((parts) => ({ count: 1, scripts: alone([isolation], write(...parts)) }))
  return { name: 'mutation', about: isolation, tables: [table], groups }
}

const B_TWICE = [[slow('B')], [slow('B')], [remove('B')]]
const C_TWICE = [[slow('C')], [slow('C')], [remove('B')]]

export const CAUGHT_BY: Readonly<Record<Fault, Scenario>> = {
  naive: races('RC', ALONE, [slow('B')], [remove('A')], [fast('B')]),
  noPromotionAfterDelete: races('RC', PAIR, [remove('A')], [fast('B')]),
  noPromotionAfterMove: races('RC', PAIR, [change('A', "A'")], [fast('B')]),
  noTouchAfterInsert: races('RC', ALONE, [slow('B')], [remove('A')], [fast('B')]),
  noTouchAfterUpdate: races(
    'RR',
    [...PAIR, storedRow(0, 0, false, 1)],
    [change("A'", 'C')],
    [slow('C')],
    [remove('B')],
  ),
  touchOnlyLooks: races('RC', ALONE, [slow('B')], [remove('A')], [fast('B')]),
  lockWithoutTouch: races('RR', PAIR, ...C_TWICE),
  touchSkipsFlagged: races('RR', PAIR, ...C_TWICE),
  touchWithoutFlag: races('RC', ALONE, [slow('B')], [remove('A')], [fast('B')]),
  noSecondRead: races('RC', PAIR, ...C_TWICE),
  noSecondReadAfterHit: races('RC', TRIPLE, ...B_TWICE),
  noSecondReadAfterMiss: races('RC', PAIR, ...C_TWICE),
  noLock: races('RC', PAIR, ...C_TWICE),
  hitWithoutLock: races('RC', TRIPLE, ...B_TWICE),
  promotedWithoutFlag: races('RC', TRIPLE, [remove('A')], [remove('B')], [fast('C')]),
  retakenWithoutFlag: races('RC', PAIR, [remove('A'), fast('C')], [remove('C')], [fast('B')]),
  touchWithoutPromotion: races('RC', ALONE, [slow('B'), remove('A')], [fast('B')]),
  noComparison: races('RC', ALONE, [slow('B'), remove('A'), fast('B')]),
  clientClearsFlag: races('RC', PAIR, [clearFlag('A')], [remove('A')], [fast('B')]),
  noPromotionAfterSoftDelete: races('RC', PAIR, [softDelete('A')], [fast('B')]),
  restoreWithoutPlace: races('RC', [...PAIR, freedRow(1, 2)], [restore('B')]),
  noTouchAfterRestore: races('RC', [...ALONE, freedRow(1)], [restore('B')], [remove('A')], [fast('B')]),
  deletedRowsCount: races('RC', [freedRow(0)], [slow('B')], [fast('B')]),
  flaggedWithoutPlace: races('RC', EMPTY, [copied('B'), copied('A!')]),
  onlyAnchorCompared: races('RC', PAIR, [twisted('C', 'B')]),
  flaggedAnchorChanges: races('RC', PAIR, [behind('A', 'B')]),
}

export interface Limit {
  readonly name: string
  readonly scenario: Scenario
  /** What breaks; undefined where it holds. */
  readonly property: string | undefined
}

const UPSERT = [[slow('A', 'update')], [fast('B')]]
const UPSERT_AND_DELETE = [[slow('A', 'update')], [remove('A')]]
const WRONG_ROW = "an upsert writes into another text's row"

/** INSERT through the guard with ON CONFLICT DO UPDATE: what it found may be gone, and its number another text's. */
export const LIMITS: readonly Limit[] = [
  { name: 'upsert, insert', scenario: races('RC', EMPTY, ...UPSERT), property: WRONG_ROW },
  {
    name: 'upsert of the text',
    scenario: races('RC', EMPTY, [slow('A', 'set text')], [fast('B')]),
    property: undefined,
  },
  {
    name: 'upsert of the text, delete',
    scenario: races('RC', PAIR, [slow('A', 'set text')], [remove('A')]),
    property: undefined,
  },
  { name: 'upsert, insert', scenario: races('RR', EMPTY, ...UPSERT), property: undefined },
  { name: 'upsert, delete', scenario: races('RC', PAIR, ...UPSERT_AND_DELETE), property: WRONG_ROW },
  { name: 'upsert, delete', scenario: races('RR', PAIR, ...UPSERT_AND_DELETE), property: undefined },
]
