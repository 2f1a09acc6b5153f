/** For each part of the triggers that can be taken out a small scenario that finds it, and that they pass when whole. */
import {
  alone,
  create,
  drop,
  ENDED,
  holding,
  KEPT,
  PLAIN,
  rename,
  swap,
  type Scenario,
  type Transaction,
} from './scenarios'
import type { Isolation, Row } from './heap'
import type { Statement } from './statements'

export interface NameMutation {
  readonly about: string
  readonly scenario: Scenario
  readonly property: string
}

function races(isolation: Isolation, table: readonly Row[], ...statements: readonly Statement[]): Scenario {
  return between(
    table,
    statements.map((one) => alone([isolation], one)),
  )
}

function between(table: readonly Row[], processes: readonly (readonly Transaction[])[]): Scenario {
  const groups = processes.map((scripts) => ({ count: 1, scripts }))
  return { name: 'mutation', about: processes[0]?.[0]?.isolation ?? '', deadlocks: 'none', tables: [table], groups }
}

const DEADLOCK = 'a deadlock'
const TWICE = 'a name has two holders'
const NAMELESS = 'a row has a name that is not held for it'
const ORPHAN = 'a name is held for a row that does not have it'

const WITH_THIRD = [...PLAIN, ...holding('users', 3)]
/** b goes over to row 3, while row 1 wants it. */
const MOVING = [rename('users', { 2: undefined, 3: 'b' }), rename('users', { 1: 'b' })] as const

/** Gives a to an org, and makes a user with the key and the name of one that is gone. */
const takesAndComesBack: Transaction = {
  isolation: 'RR',
  statements: [rename('orgs', { 1: 'a' }), create('users', { 1: 'a' })],
}

export const NAME_MUTATIONS: Readonly<Record<string, NameMutation>> = {
  otherOrder: {
    about: 'one of two tables claims in another order',
    scenario: races('RC', PLAIN, create('users', { 3: 'x', 4: 'y' }), create('orgs', { 3: 'x', 4: 'y' })),
    property: DEADLOCK,
  },
  claimsOnly: {
    about: 'what is given up is not locked in the pass',
    scenario: races('RC', WITH_THIRD, rename('users', { 1: 'x', 3: 'z' }), create('orgs', { 3: 'a', 4: 'x' })),
    property: DEADLOCK,
  },
  releasesFirst: {
    about: 'what is given up is locked before all claims',
    scenario: races('RC', WITH_THIRD, rename('users', { 2: '0', 3: 'z' }), create('orgs', { 3: '0', 4: 'b' })),
    property: DEADLOCK,
  },
  givesUpFirst: {
    about: 'a rename of one row gives up before it claims',
    scenario: races('RC', PLAIN, rename('users', { 2: '0' }), create('orgs', { 3: '0', 4: 'b' })),
    property: DEADLOCK,
  },
  deletedInAnyOrder: {
    about: 'a delete locks in the order of its rows',
    scenario: races('RC', PLAIN, drop('users', 1, 2), create('orgs', { 3: 'a', 4: 'b' })),
    property: DEADLOCK,
  },
  noLock: {
    about: 'what is in the way is not locked before it is looked at again',
    scenario: races('RC', WITH_THIRD, ...MOVING),
    property: TWICE,
  },
  abandonedInOldSnapshot: {
    about: 'whether its row has a name is told by a snapshot older than the lock',
    scenario: races('RC', WITH_THIRD, ...MOVING),
    property: TWICE,
  },
  takenFromAnyone: {
    about: 'held names are taken from rows that have them',
    scenario: races('RC', PLAIN, rename('users', { 1: 'b' })),
    property: TWICE,
  },
  nothingIsAbandoned: {
    about: 'a name that its row has no more is not taken',
    scenario: races('RC', PLAIN, swap),
    property: 'a name is refused that nobody has',
  },
  noLook: {
    about: 'what another row took is released all the same',
    scenario: races('RC', PLAIN, rename('users', { 1: 'b', 2: undefined })),
    property: NAMELESS,
  },
  nothingIsReleased: {
    about: 'names that are given up stay',
    scenario: races('RC', PLAIN, rename('users', { 1: 'x' })),
    property: ORPHAN,
  },
  reservationsDoNotCount: {
    about: 'a reservation keeps nobody out',
    scenario: races('RC', KEPT, create('users', { 3: 'a' })),
    property: 'a kept former name is lost before its time',
  },
  deletedById: {
    about: 'a delete takes what another row has by now',
    scenario: races('RC', ENDED, drop('orgs', 1), create('users', { 3: 'a' })),
    property: NAMELESS,
  },
  noReread: {
    about: 'rows are taken for what the statement made them',
    scenario: races('RC', PLAIN, rename('users', { 1: 'x' }, rename('users', { 1: 'y' }))),
    property: NAMELESS,
  },
  oldRowCounts: {
    about: 'an old row with the key of a new one is taken for it',
    scenario: races('RR', PLAIN, create('users', { 1: 'x' }), drop('users', 1)),
    property: NAMELESS,
  },
  heldInOldSnapshot: {
    about: 'what an old snapshot shows as held is taken for held',
    scenario: between(PLAIN, [[takesAndComesBack], alone(['RC'], drop('users', 1))]),
    property: TWICE,
  },
}
