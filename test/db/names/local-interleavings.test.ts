import { attachHolder } from '../../support/names-table'
import { LEVELS } from '../../support/sessions'
import { testInterleavings } from './play-interleavings'
import { gatePart } from '../../support/gate-part'

/** Of tables that Citus may keep local: no statement has a kept plan, and none sets FOUND. */
testInterleavings(gatePart(3, LEVELS), {
  name: 'local',
  triggers: (table) => [attachHolder({ ...table, citus: 'local' })],
})
