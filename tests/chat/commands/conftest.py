"""The world in which commands are typed."""

from chat.talking_face import at_home as at_home
