import { testInterleavings } from './play-interleavings'
import { gatePart } from '../../support/gate-part'

testInterleavings(gatePart(2, ['REPEATABLE READ', 'SERIALIZABLE']))
